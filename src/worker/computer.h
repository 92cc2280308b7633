#pragma once
// The seam between the server, which decides, and the thread that computes. The server never waits: it starts a job and
// hears of its end on its loop. LoopComputer is the real one; tests use one that computes in virtual time.

#include "base/clock.h"
#include "base/floats.h"
#include "moe/engine.h"
#include "wire/messages.h"

#include <functional>

namespace linkcpp::worker {

/// One COMPUTE that was checked against its slice: layer, program, widths and indices fit the engine.
struct ComputeJob {
    moe::Engine* engine = nullptr;  ///< outlives the job
    int layer = 0;
    std::shared_ptr<const moe::Program> program;
    wire::Compute request;
    uint32_t n_out = 0;    ///< width of an output row
    bool at_once = false;  ///< all of it may be computed at once: memory was reckoned for that
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

}  // namespace linkcpp::worker
