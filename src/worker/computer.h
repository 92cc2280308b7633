#pragma once
// The seam between the server, which decides, and the thread that computes. The server never waits: it starts a job and
// hears of its end on its loop. LoopComputer is the real one; tests use one that computes in virtual time.

#include "base/clock.h"
#include "base/floats.h"
#include "moe/engine.h"
#include "wire/messages.h"

#include <atomic>
#include <functional>

namespace linkcpp::worker {

/// One COMPUTE that was checked against its slice: layer, program, widths and indices fit the engine.
struct ComputeJob {
    moe::Engine* engine = nullptr;  ///< outlives the job
    int layer = 0;
    std::shared_ptr<const moe::Program> program;
    wire::Compute request;
    uint32_t n_out = 0;  ///< width of an output row
};

struct ComputeOutcome {
    Status status;
    Floats rows;  ///< [n_out, n_rows_out]; of no use on failure
    Duration compute{0};
};

class Computer {
  public:
    using Done = std::function<void(ComputeOutcome)>;
    virtual ~Computer() = default;
    /// Computes `job` after those started before it, and calls `done` on the loop. The caller bounds how many are
    /// under way.
    virtual void start(ComputeJob job, Done done) = 0;
    /// Pairs computed since the start; grows while a long job runs. Any thread.
    virtual uint64_t pairs_done() const = 0;
};

/// Pairs in a part of a long job: large enough for the matrix multiplication, small enough to be milliseconds on a phone.
constexpr size_t part_pairs = 512;

/// Rows of a long job on their way to sums. Kept between jobs, because fresh pages are slow; at most 64 MB, a prompt of 512
/// tokens at a width of 4096 with 8 experts each.
struct ComputeMemory {
    Floats rows;
    void shrink() {
        if (rows.capacity() * sizeof(float) > max_kept_bytes) *this = {};
    }
    static constexpr size_t max_kept_bytes = 64u << 20;
};

/// Computes a job on this thread. Long jobs go in parts, so that `pairs_done` shows progress and `stop` is heeded: a part is
/// all pairs of some experts, because an expert that sees all its rows at once gives the same bits as in a whole run.
/// Errors: those of Engine::compute(); exhausted (memory); unavailable (`stop` became true).
ComputeOutcome compute(const ComputeJob& job, ComputeMemory& memory, std::atomic<uint64_t>& pairs_done,
                       const std::atomic<bool>& stop);

}  // namespace linkcpp::worker
