#pragma once
// A whole decode with remote layers beside a local one, step by step in turns: linkcpp, and llama.cpp's own RPC backend.

#include "cmd/bench/report.h"
#include "cmd/model_options.h"

#include <atomic>

namespace linkcpp::cmd::bench {

struct DecodePlan {
    ModelOptions compute;
    std::string slice;             ///< all experts of all layers
    std::vector<int> layers;       ///< numbers of remote layers to measure; the largest one with a prompt
    std::vector<int> round_trips;  ///< milliseconds; 0: without anything in between
    std::vector<uint32_t> batches;
    int n_prompt = 512, n_steps = 12, n_rounds = 5;
    bool rpc = false;  ///< the same with ggml-rpc-server, batch 1
};

/// Adds to the report's `decode`. `n_layers`: of the model, with experts.
Status measure_decode(const DecodePlan& plan, int n_layers, const std::atomic<bool>& stop, Report& report);

}  // namespace linkcpp::cmd::bench
