#pragma once
// What a node, be it a backbone or a worker, is at a hub: its key, and the hub's key as it was at the first contact, both in a folder of its own (node.key,
// hub.pub). Thread-safe; each thread asks through a HubApi of its own.

#include "client/hub_api.h"

#include <mutex>

namespace linkcpp::client {

struct AccountSettings {
    HubUrl url;
    std::string folder;  ///< is made
    std::optional<Bytes> join_token;
    HttpSettings http;
    std::optional<PublicKey> hub_key = {};  ///< when it is known; else what is remembered, or the first one counts
};

class HubAccount {
  public:
    /// Errors: unsupported (`hub_key` is not the one that is remembered), io, corrupt and the like, of the two files.
    static Result<std::unique_ptr<HubAccount>> open(AccountSettings settings);

    const HubUrl& url() const { return settings_.url; }
    const std::string& folder() const { return settings_.folder; }
    const SigningKey& key() const { return key_; }
    std::string node() const { return key_.public_key().fingerprint(); }
    /// The hub's key; none before the first enter(), unless it was known.
    std::optional<PublicKey> hub_key() const {
        const std::lock_guard lock(mutex_);
        return pinned_;
    }

    /// `stop` outlives what is returned; this object does as well.
    HubApi api(const std::atomic<bool>* stop = nullptr) const;
    /// Registers. Errors: unsupported (another hub than before, or one that does not want us), io (its key cannot be kept),
    /// those of HubApi.
    Status enter(HubApi& api);
    /// Asks, and where the hub does not know us (any more), registers and asks again.
    template <typename Ask>
    auto ask(HubApi& api, const Ask& question) -> decltype(question()) {
        auto answer = question();
        if (answer.ok() || answer.status().code() != Code::mismatch) return answer;
        if (const Status entered = enter(api); !entered.ok()) return entered;
        return question();
    }

  private:
    HubAccount(AccountSettings settings, SigningKey key, std::optional<PublicKey> pinned)
        : settings_(std::move(settings)), key_(std::move(key)), pinned_(pinned ? pinned : settings_.hub_key),
          kept_(pinned.has_value()) {}
    Status keep(const PublicKey& hub) const;
    std::string pin_path() const { return settings_.folder + "/hub.pub"; }

    const AccountSettings settings_;
    const SigningKey key_;
    mutable std::mutex mutex_;
    std::optional<PublicKey> pinned_;  // protected by mutex_
    bool kept_;                        // protected by mutex_; pinned_ is in its file
};

}  // namespace linkcpp::client
