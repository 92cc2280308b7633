#pragma once
// How a request's pairs are computed: all at once, which is fastest, or in parts, where that would take too long or too much
// memory. The bits are the same.

#include "worker/computer.h"

#include <atomic>

namespace linkcpp::worker {

/// Pairs in a part of a long job: large enough for the matrix multiplication, small enough to be milliseconds on a phone.
constexpr size_t part_pairs = 512;

/// Computes jobs one after the other. Belongs to one thread at a time.
class JobRunner {
  public:
    /// `patience`: a job that would take longer, as far as earlier ones tell, is computed in parts.
    explicit JobRunner(const Clock& clock, Duration patience = std::chrono::seconds(1))
        : clock_(clock), patience_(patience) {}

    /// Adds to `pairs_done` as parts are done, and heeds `stop` between them. A part is all pairs of some experts, because
    /// an expert that sees all its rows at once gives the same bits as in a whole run.
    /// Errors: those of Engine::compute(); exhausted (memory); unavailable (`stop` became true).
    ComputeOutcome run(const ComputeJob& job, std::atomic<uint64_t>& pairs_done, const std::atomic<bool>& stop);

  private:
    bool goes_at_once(const ComputeJob& job) const;
    Status run_into(const ComputeJob& job, std::span<float> out, std::atomic<uint64_t>& pairs_done,
                    const std::atomic<bool>& stop);
    Status run_at_once(const ComputeJob& job, std::span<float> out);
    Status run_parts(const ComputeJob& job, std::span<float> y, std::atomic<uint64_t>& pairs_done,
                     const std::atomic<bool>& stop);
    Status run_part(const ComputeJob& job, std::span<const uint32_t> pairs, std::span<float> y);
    void note_speed(size_t n_pairs, Duration time);

    /// Kept between jobs, because fresh pages are slow.
    static constexpr size_t max_kept_bytes = 64u << 20;

    const Clock& clock_;
    Duration patience_;
    Duration per_pair_{0};  // of the last job or part that had many; 0: none had yet
    Floats rows_;           // of a job in parts, on their way to sums
};

}  // namespace linkcpp::worker
