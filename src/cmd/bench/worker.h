#pragma once
// A worker through its socket, beside the bare ggml graph in this process and beside a plain TCP echo of the same bytes.

#include "cmd/bench/expert_layer.h"
#include "cmd/bench/report.h"

#include <atomic>

namespace linkcpp::cmd::bench {

struct WorkerPlan {
    std::string model, slice;  ///< a full model; a slice with all experts of its first layer that has any
    std::vector<uint32_t> batches;
    int n_threads = 0;  ///< of the worker and of the bare graph, which take turns
    bool verbose = false;
};

/// Fills the report's `worker`, `slice_bytes` and `slice_to_serving_s`. Errors: what went wrong with worker or files.
Status measure_worker(const WorkerPlan& plan, const std::atomic<bool>& stop, Report& report);

}  // namespace linkcpp::cmd::bench
