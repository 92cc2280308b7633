#include "client/hub_account.h"

#include "base/log.h"

#include <filesystem>
#include <fstream>

namespace linkcpp::client {

Result<std::unique_ptr<HubAccount>> HubAccount::open(AccountSettings settings) {
    std::error_code error;
    std::filesystem::create_directories(settings.folder, error);
    if (error) return {Code::io, settings.folder + ": cannot be created: " + error.message()};
    Result<SigningKey> key = SigningKey::load_or_create(settings.folder + "/node.key");
    if (!key.ok()) return key.status();
    return std::unique_ptr<HubAccount>(new HubAccount(std::move(settings), std::move(*key)));
}

HubAccount::HubAccount(AccountSettings settings, SigningKey key)
    : settings_(std::move(settings)), key_(std::move(key)) {
    std::ifstream file(settings_.folder + "/hub.pub");
    std::string hex;
    if (!(file >> hex)) return;
    if (const auto pinned = PublicKey::parse(hex); pinned.ok()) pinned_ = *pinned;
}

HubApi HubAccount::api(const std::atomic<bool>* stop) const {
    HttpSettings http = settings_.http;
    http.stop = stop;
    return {settings_.url, std::move(http), key_, settings_.join_token};
}

Status HubAccount::enter(HubApi& api) {
    const std::lock_guard lock(mutex_);
    const auto registration = api.register_node(pinned_);
    if (!registration.ok()) return registration.status();
    if (pinned_) return {};
    pinned_ = registration->hub;
    std::ofstream(settings_.folder + "/hub.pub") << registration->hub.hex() << "\n";
    log_info("hub key {}, remembered in {}", registration->hub.hex(), settings_.folder + "/hub.pub");
    return {};
}

}  // namespace linkcpp::client
