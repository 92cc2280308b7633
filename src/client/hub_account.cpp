#include "client/hub_account.h"

#include "base/log.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace linkcpp::client {

Result<std::unique_ptr<HubAccount>> HubAccount::open(AccountSettings settings) {
    std::error_code error;
    std::filesystem::create_directories(settings.folder, error);
    if (error) return {Code::io, settings.folder + ": cannot be created: " + error.message()};
    Result<SigningKey> key = SigningKey::load_or_create(settings.folder + "/node.key");
    if (!key.ok()) return key.status();
    const std::string pin_path = settings.folder + "/hub.pub";
    std::optional<PublicKey> pinned;
    if (std::ifstream file(pin_path); file) {
        std::string hex;
        file >> hex;
        const auto parsed = PublicKey::parse(hex);
        if (!parsed.ok())
            return {Code::corrupt, pin_path + " does not have the key of a hub; remove it to trust " +
                                       settings.url.str() + " as at a first contact"};
        pinned = *parsed;
    }
    if (pinned && settings.hub_key && *pinned != *settings.hub_key)
        return {Code::unsupported, pin_path + " has the key of another hub, " + pinned->hex() + ", and not " +
                                       settings.hub_key->hex() + "; use a folder of its own for each hub"};
    return std::unique_ptr<HubAccount>(new HubAccount(std::move(settings), std::move(*key), pinned));
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
    if (kept_) return {};
    LINKCPP_TRY(keep(registration->hub));
    pinned_ = registration->hub;
    kept_ = true;
    return {};
}

Status HubAccount::keep(const PublicKey& hub) const {
    // Under another name first: half a key would be no key the next time.
    const std::string path = pin_path(), fresh = path + "." + std::to_string(getpid());
    std::error_code error;
    if (std::ofstream file(fresh); !(file << hub.hex() << "\n").flush())
        return {Code::io, path + ": the hub's key cannot be kept: " + std::strerror(errno)};
    std::filesystem::rename(fresh, path, error);
    if (error) return {Code::io, path + ": the hub's key cannot be kept: " + error.message()};
    log_info("hub key {}, remembered in {}", hub.hex(), path);
    return {};
}

}  // namespace linkcpp::client
