#pragma once
// Pulls files from a hub: several connections, each slab compared with the manifest as it arrives, resumed after any
// interruption, tried again while the hub is away. Files have their names only when they are whole and right.

#include "client/http_client.h"
#include "client/manifest_reader.h"
#include "client/pull_plan.h"

namespace linkcpp::client {

struct PullSettings {
    HttpSettings http;  ///< its `stop` is set by pull()
    int n_connections = 4;
    Duration first_backoff = std::chrono::milliseconds(200), longest_backoff = std::chrono::seconds(10);
    Duration patience = std::chrono::minutes(10);  ///< without a byte, before giving up
    int max_wrong = 3;                             ///< times that the same unit may arrive damaged
    /// Called by the thread that called pull(). `resumed`: bytes of `done` that an earlier attempt had.
    std::function<void(uint64_t done, uint64_t total, uint64_t resumed)> progress;
    moe::Progress checking;  ///< of what is there already, before anything is fetched
    const std::atomic<bool>* cancelled = nullptr;
};

struct Pulled {
    uint64_t bytes = 0;    ///< of all units
    uint64_t resumed = 0;  ///< of them, those that were there already
    uint64_t fetched = 0;  ///< that came over the network, damaged and repeated ones too
    uint64_t n_wrong = 0;  ///< units that arrived damaged, and were fetched again
};

/// The manifest of a model. Errors: as HttpClient, not_found and the like in the hub's words; as read_manifest().
Result<SignedManifest> fetch_manifest(const HubUrl& url, const std::string& model, const HttpSettings& settings);

/// All files appear, or (but for a failure of the system in between) none. Errors: unavailable (cancelled; the hub stayed
/// away), corrupt (the same unit was wrong time and again), exhausted, io; what has arrived is kept for the next attempt.
Result<Pulled> pull(const HubUrl& url, const std::vector<PullFile>& files, const PullSettings& settings);

}  // namespace linkcpp::client
