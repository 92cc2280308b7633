#pragma once
// What the backend is told, once, when it is registered. cmd reads options and environment variables into this.

#include "base/clock.h"
#include "dispatch/request.h"
#include "net/loop.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace linkcpp::backend {

enum class Fallback {
    automatic,  ///< local weights where the file has them, none with a sparse file
    local,      ///< as automatic, but a file without weights is an error at load time
    none,       ///< never: what nobody holds is an error
};

/// One line of statistics: the routed experts of one layer for one batch.
struct LayerStats {
    int layer = 0;
    uint32_t n_tokens = 0, n_pairs = 0, pairs_remote = 0, pairs_local = 0;
    Duration elapsed{};
};

/// Totals since the backend was registered.
struct Totals {
    uint64_t layer_calls = 0, tokens = 0;  ///< tokens: summed over layers
    uint64_t pairs_remote = 0, pairs_local = 0;
    uint64_t bytes_out = 0, bytes_in = 0, failovers = 0;
    Duration round_trip_p50{}, round_trip_p99{};
    std::map<std::string, uint64_t> pairs_by_worker;
    std::map<std::string, std::string> class_by_worker;
};

struct Config {
    std::string error;  ///< not empty: the settings make no sense, every decode fails with this
    std::vector<net::Address> workers;
    int layer_begin = 0, layer_end = INT32_MAX;  ///< layers whose experts may go remote
    Fallback fallback = Fallback::automatic;
    dispatch::SplitMode split = dispatch::SplitMode::exact;
    std::string model_path;                           ///< file with the local weights; empty: the file that was loaded
    uint64_t expert_cache_bytes = 2ull << 30;         ///< local experts kept for fallback
    int n_threads = 0;                                ///< for local experts; 0: as the host process says
    std::function<void(const LayerStats&)> on_layer;  ///< called by the computing thread after each layer
};

}  // namespace linkcpp::backend
