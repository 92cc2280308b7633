#pragma once
// Who computes which expert of a job: a pure function of who holds what. All rows of one expert in a job go to one holder
// in one request: some kernels of ggml choose their path by the number of rows an expert gets, so that splitting an
// expert's rows could change the last bit.

#include "base/clock.h"

#include <cstdint>
#include <span>
#include <vector>

namespace linkcpp::dispatch {

/// A slice at a worker, as a candidate for one layer.
struct Holder {
    uint32_t peer = 0;   ///< index of the worker
    uint32_t offer = 0;  ///< index of its slice
    uint32_t expert_begin = 0, expert_end = 0;
    bool same_class = false;  ///< its results are bit-equal with local ones
    Duration expected{};      ///< expected time until an answer comes
};

constexpr int no_holder = -1;

/// For each expert of `experts` (distinct ids): the index into `holders` that computes it, or no_holder. As few workers
/// as a greedy cover finds, and at each as few slices, because a token whose experts are all in one slice comes back as
/// one exact sum; between equal covers the same numeric class wins, then fewer slices, then the shorter expected time,
/// then the earlier worker.
std::vector<int> place(std::span<const uint32_t> experts, std::span<const Holder> holders);

}  // namespace linkcpp::dispatch
