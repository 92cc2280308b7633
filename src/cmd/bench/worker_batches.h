#pragma once
// Batches of tokens through a worker's socket, each beside the same experts computed here as a bare graph and beside a plain
// TCP echo of the same bytes.

#include "cmd/bench/expert_layer.h"
#include "cmd/bench/report.h"
#include "moe/engine.h"
#include "net/loop.h"

#include <atomic>

namespace linkcpp::cmd::bench {

/// `worker` serves all experts of `layer`; `engine` has them too. `batches`: tokens per request. Errors: unavailable (the
/// worker, or `stop` became true), those of the engine.
Result<std::vector<WorkerPoint>> measure_batches(const ExpertLayer& layer, const net::Address& worker,
                                                 moe::Engine& engine, const std::vector<uint32_t>& batches,
                                                 const std::atomic<bool>& stop);

}  // namespace linkcpp::cmd::bench
