#pragma once
// A whole decode with remote layers beside a local one, step by step in turns: linkcpp, and llama.cpp's own RPC backend.

#include "cmd/bench/report.h"
#include "cmd/model_options.h"

#include <atomic>
#include <functional>

namespace linkcpp::cmd::bench {

struct DecodePlan {
    ModelOptions compute;
    /// Cuts a slice with all experts of the first layers. Experts that nobody asks for would take memory that the local run
    /// beside it needs.
    std::function<Status(int layer_begin, int layer_end, const std::string& path)> cut;
    std::string slice;               ///< where, one at a time
    std::vector<int> expert_layers;  ///< of the model, ascending
    /// How many layers are remote, one measurement after the other: at most as many as have experts. With all: also a prompt.
    std::vector<int> layers;
    std::vector<int> round_trips;  ///< milliseconds; 0: without anything in between
    std::vector<uint32_t> batches;
    int n_prompt = 512, n_steps = 12, n_rounds = 5;
    bool rpc = false;  ///< the same with ggml-rpc-server, batch 1
};

/// Adds to the report's `decode`.
Status measure_decode(const DecodePlan& plan, const std::atomic<bool>& stop, Report& report);

}  // namespace linkcpp::cmd::bench
