#include "client/discovery.h"

#include "net/hub_service.h"

#include <algorithm>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <optional>

namespace linkcpp::client {

namespace {

constexpr size_t max_listed = 8;

bool is_usable(const std::string& text, bool over_loopback) {
    in_addr parsed;
    if (inet_pton(AF_INET, text.c_str(), &parsed) != 1) return false;
    const uint32_t first = ntohl(parsed.s_addr) >> 24;
    if (first == 127) return over_loopback;  // else a stranger would choose among this machine's own ports
    return first != 0 && first < 224;        // neither "this network" nor multicast, reserved, broadcast
}

std::optional<std::string> scheme_of(const std::vector<std::string>& txt) {
    const std::string key = std::string(net::hub_service_scheme) + "=";
    std::optional<std::string> scheme;
    for (const std::string& line : txt) {
        if (!line.starts_with(key)) continue;
        if (scheme) return {};
        scheme = line.substr(key.size());
    }
    return scheme;
}

}  // namespace

Result<HubUrl> hub_of(const Announcement& announcement) {
    if (!is_usable(announcement.address, announcement.over_loopback) || announcement.port == 0)
        return {Code::invalid_argument, "announced is no address of a machine on the network"};
    const auto scheme = scheme_of(announcement.txt);
    if (scheme != "http" && scheme != "https") return {Code::invalid_argument, "announced is neither http nor https"};
    return HubUrl{.tls = scheme == "https", .host = announcement.address, .port = announcement.port};
}

Result<HubUrl> only_hub(std::vector<HubUrl> found, Duration limit) {
    std::vector<std::string> urls;
    for (const HubUrl& hub : found)
        urls.push_back(hub.str());
    std::sort(urls.begin(), urls.end());
    urls.erase(std::unique(urls.begin(), urls.end()), urls.end());
    if (urls.empty()) {
        return {Code::not_found, fmt::format("no hub answered on this network within {} s; name it with --hub "
                                             "http://HOST:19000",
                                             std::chrono::duration_cast<std::chrono::seconds>(limit).count())};
    }
    if (urls.size() == 1) return found.front();
    const size_t n_listed = std::min(urls.size(), max_listed);
    const std::string more = urls.size() > n_listed ? fmt::format(" and {} more", urls.size() - n_listed) : "";
    urls.resize(n_listed);
    return {Code::invalid_argument, fmt::format("several hubs answered on this network: {}{}; name one with --hub",
                                                fmt::join(urls, ", "), more)};
}

}  // namespace linkcpp::client
