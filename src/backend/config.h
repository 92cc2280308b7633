#pragma once
// What the backend is told, once, when it is registered. cmd reads options and environment variables into this.

#include "base/bytes.h"
#include "base/clock.h"
#include "base/signing_key.h"
#include "client/url.h"
#include "dispatch/request.h"
#include "net/loop.h"

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linkcpp::backend {

enum class Fallback {
    automatic,  ///< local weights where the file has them, none with a sparse file
    local,      ///< as automatic, but a file without weights is an error at load time
    none,       ///< never: what nobody holds is an error
};

/// Which workers may compute, of those that hold slices of this very model.
enum class Policy {
    tolerant,  ///< any that computes as a local run does, up to the rounding of other instructions
    exact,     ///< only those of this machine's numeric class: every bit is that of a local run
};

/// One line of statistics: the routed experts of one layer for one batch.
struct LayerStats {
    std::string_view model;  ///< its file's name, "" where that is not known; valid during the call
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
    std::map<std::string, uint64_t> pairs_by_node;  ///< that receipts were written for, by the node's id at its hub
    uint64_t pairs_recorded = 0;                    ///< of those, what the hub has recorded
    uint64_t receipts_waiting = 0;                  ///< on the disk, for a hub that did not take them yet
};

/// The hub that knows a model's workers.
struct HubSettings {
    std::optional<client::HubUrl> url;
    std::string model;                ///< as the hub calls it; empty: the one that has our fingerprint
    std::string folder;               ///< key, receipts; empty: under Config::data_folder
    std::optional<PublicKey> key;     ///< the hub's, when it is known
    std::optional<Bytes> join_token;  ///< of a private swarm
    std::string ca_file;
    Duration wait = std::chrono::seconds(60);  ///< for experts that nobody holds yet, or now
};

/// What one model of the process is computed with.
struct ModelSettings {
    std::vector<net::Address> workers;  ///< beside those that the hub names
    HubSettings hub;
    int layer_begin = 0, layer_end = INT32_MAX;  ///< layers whose experts may go remote
    Fallback fallback = Fallback::automatic;
    dispatch::SplitMode split = dispatch::SplitMode::exact;
    Policy policy = Policy::tolerant;
    double audit = 1.0 / 1024;                 ///< share of the answers that are computed again; 1: all, before use
    std::string model_path;                    ///< file with the local weights; empty: the file that was loaded
    uint64_t expert_cache_bytes = 2ull << 30;  ///< local experts kept for fallback

    /// Else everything is computed here.
    bool has_workers() const { return !workers.empty() || hub.url.has_value(); }
    bool covers(int layer) const { return layer >= layer_begin && layer < layer_end; }
};

struct Config {
    std::string error;                                          ///< not empty: every decode fails with this
    ModelSettings defaults;                                     ///< of a model that none of `models` names
    std::vector<std::pair<std::string, ModelSettings>> models;  ///< by a pattern of the file's name; the first counts
    std::string data_folder;                                    ///< of this machine's backbones, a folder for each hub
    const std::atomic<bool>* stop = nullptr;                    ///< becomes true: a decode that waits for workers fails
    int n_threads = 0;                                          ///< for local experts; 0: as the host process says
    std::function<void(const LayerStats&)> on_layer;            ///< called by the computing thread after each layer

    /// The settings of the model in `path`; "" where the file is not known.
    const ModelSettings& for_file(std::string_view path) const;
    /// May experts of this layer go remote in any model? All that can be asked before a model has a name.
    bool any_covers(int layer) const;
};

/// The last component of a path.
std::string file_name(std::string_view path);

}  // namespace linkcpp::backend
