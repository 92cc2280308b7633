#pragma once
// Keeps a backbone's list of workers as a hub knows it: asks, waits at the hub for changes ("lc-place" is its thread), and keeps
// the last answer on the disk for a time when the hub is away. A hub that goes away in between changes nothing.

#include "client/hub_account.h"
#include "client/roster.h"

#include <condition_variable>
#include <thread>

namespace linkcpp::client {

struct WatchSettings {
    std::string model;        ///< as the hub calls it; empty: the one with this fingerprint
    std::string fingerprint;  ///< of the model that is loaded; empty: not known
    RosterSettings roster;
};

class PlacementWatch {
  public:
    /// Address -> node id, see Roster. Called on the watch's thread, whenever it has changed.
    using OnChange = std::function<void(const std::string& model, const std::map<std::string, std::string>& workers)>;

    /// `account` outlives it.
    PlacementWatch(HubAccount& account, WatchSettings settings, OnChange on_change);
    ~PlacementWatch();

    /// Waits for the first answer, or for what an earlier one left on the disk when there is none. `stop` ends that.
    /// Errors: unavailable, timeout (no hub, and nothing on the disk), not_found, mismatch (it has no such model),
    /// unsupported (it does not want us, or is not the hub that it was).
    Status wait_for_first(const std::atomic<bool>* stop);

  private:
    void run();
    Status ask();
    Status find_model();
    void apply(const Placement& placement);
    Status begin_from_cache(const Status& why);
    std::string cache_path() const;
    Result<Placement> read_cache() const;
    void write_cache(const Placement& placement) const;
    bool pause(Duration duration);

    HubAccount& account_;
    const WatchSettings settings_;
    const OnChange on_change_;
    const SteadyClock clock_;
    std::atomic<bool> stop_{false};
    HubApi api_;
    // Of the thread:
    std::string model_;
    std::optional<uint64_t> version_;
    bool entered_ = false, away_ = false, told_ = false;
    Roster roster_;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<Status> first_;  // protected by mutex_
    std::thread thread_;           // last: it uses the rest
};

}  // namespace linkcpp::client
