#include "base/log.h"
#include "client/discovery.h"
#include "net/hub_service.h"

#include <avahi-common/error.h>
#include <avahi-common/simple-watch.h>
#include <avahi-core/core.h>
#include <avahi-core/log.h>
#include <avahi-core/lookup.h>
#include <ifaddrs.h>
#include <map>
#include <net/if.h>

namespace linkcpp::client {

namespace {

using namespace std::chrono_literals;

/// How long others may answer after the first one: to notice that there are several.
constexpr Duration settling = 2s;
/// Whoever floods the network with names is not asked about more of them.
constexpr size_t max_asked = 64;
constexpr size_t max_txt = 16;

bool is_loopback(AvahiIfIndex index) {
    char name[IF_NAMESIZE];
    ifaddrs* all = nullptr;
    if (index < 0 || !if_indextoname(static_cast<unsigned>(index), name) || getifaddrs(&all) != 0) return false;
    bool found = false;
    for (const ifaddrs* one = all; one; one = one->ifa_next)
        found = found || (std::string(one->ifa_name) == name && (one->ifa_flags & IFF_LOOPBACK) != 0);
    freeifaddrs(all);
    return found;
}

/// One search; its callbacks come on the thread that runs it.
class Search {
  public:
    Search() = default;
    Search(const Search&) = delete;
    Search& operator=(const Search&) = delete;
    ~Search() {
        if (server_) avahi_server_free(server_);  // with all that asks through it
        if (poll_) avahi_simple_poll_free(poll_);
    }

    Status start();
    Result<HubUrl> run(Duration limit);

  private:
    static void on_service(AvahiSServiceBrowser*, AvahiIfIndex interface, AvahiProtocol protocol,
                           AvahiBrowserEvent event, const char* name, const char* type, const char* domain,
                           AvahiLookupResultFlags, void* self);
    static void on_resolved(AvahiSServiceResolver* resolver, AvahiIfIndex interface, AvahiProtocol,
                            AvahiResolverEvent event, const char* name, const char*, const char*, const char*,
                            const AvahiAddress* address, uint16_t port, AvahiStringList* txt, AvahiLookupResultFlags,
                            void* self);
    void take(const std::string& name, const Announcement& announcement);

    AvahiSimplePoll* poll_ = nullptr;
    AvahiServer* server_ = nullptr;
    const SteadyClock clock_;
    size_t n_asked_ = 0;
    Instant first_answer_{};
    std::map<std::string, HubUrl> found_;  ///< by name: a hub that is reached in several ways is one hub
};

Status Search::start() {
    avahi_set_log_function([](AvahiLogLevel, const char* text) { log_debug("mDNS: {}", text); });
    poll_ = avahi_simple_poll_new();
    if (!poll_) return {Code::exhausted, "no memory to look for a hub with"};
    AvahiServerConfig config;
    avahi_server_config_init(&config);
    config.use_ipv6 = 0;
    config.disable_publishing = 1;
    config.publish_addresses = config.publish_hinfo = config.publish_workstation = config.publish_domain = 0;
    config.enable_wide_area = 0;
    config.check_response_ttl = 1;  // what comes through a router is not from this network
    int error = 0;
    server_ = avahi_server_new(avahi_simple_poll_get(poll_), &config, nullptr, nullptr, &error);
    avahi_server_config_free(&config);
    if (server_ && !avahi_s_service_browser_new(server_, AVAHI_IF_UNSPEC, AVAHI_PROTO_INET, net::hub_service_type,
                                                nullptr, AVAHI_LOOKUP_USE_MULTICAST, on_service, this)) {
        error = avahi_server_errno(server_);
    }
    if (error == 0) return {};
    return {Code::io, fmt::format("cannot look for a hub on this network ({}); name it with --hub http://HOST:19000",
                                  avahi_strerror(error))};
}

Result<HubUrl> Search::run(Duration limit) {
    const Instant end = clock_.now() + limit;
    while (true) {
        const Instant until = found_.empty() ? end : std::min(end, first_answer_ + settling);
        const Duration left = until - clock_.now();
        if (left <= 0ns) break;
        const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left);
        if (avahi_simple_poll_iterate(poll_, static_cast<int>(wait.count())) != 0) break;
    }
    std::vector<HubUrl> hubs;
    for (const auto& [name, hub] : found_)
        hubs.push_back(hub);
    return only_hub(std::move(hubs), limit);
}

void Search::on_service(AvahiSServiceBrowser*, AvahiIfIndex interface, AvahiProtocol protocol, AvahiBrowserEvent event,
                        const char* name, const char* type, const char* domain, AvahiLookupResultFlags, void* self) {
    auto& search = *static_cast<Search*>(self);
    if (event != AVAHI_BROWSER_NEW || search.n_asked_ == max_asked) return;
    ++search.n_asked_;
    avahi_s_service_resolver_new(search.server_, interface, protocol, name, type, domain, AVAHI_PROTO_INET,
                                 AVAHI_LOOKUP_USE_MULTICAST, on_resolved, self);
}

void Search::on_resolved(AvahiSServiceResolver* resolver, AvahiIfIndex interface, AvahiProtocol,
                         AvahiResolverEvent event, const char* name, const char*, const char*, const char*,
                         const AvahiAddress* address, uint16_t port, AvahiStringList* txt, AvahiLookupResultFlags,
                         void* self) {
    if (event == AVAHI_RESOLVER_FOUND && name && address && address->proto == AVAHI_PROTO_INET) {
        char text[AVAHI_ADDRESS_STR_MAX];
        avahi_address_snprint(text, sizeof text, address);
        Announcement announcement{.address = text, .port = port, .over_loopback = is_loopback(interface)};
        for (; txt && announcement.txt.size() < max_txt; txt = avahi_string_list_get_next(txt)) {
            announcement.txt.emplace_back(reinterpret_cast<const char*>(avahi_string_list_get_text(txt)),
                                          avahi_string_list_get_size(txt));
        }
        static_cast<Search*>(self)->take(name, announcement);
    }
    avahi_s_service_resolver_free(resolver);
}

void Search::take(const std::string& name, const Announcement& announcement) {
    const Result<HubUrl> hub = hub_of(announcement);
    if (!hub.ok()) {
        log_debug("an announcement is left out: {}", hub.status().message());
        return;
    }
    if (found_.empty()) first_answer_ = clock_.now();
    // Among several ways always the same one: folders of workers are named after it.
    const auto [at, is_new] = found_.emplace(name, *hub);
    if (!is_new && hub->str() < at->second.str()) at->second = *hub;
}

}  // namespace

Result<HubUrl> discover_hub(Duration limit) {
    Search search;
    LINKCPP_TRY(search.start());
    return search.run(limit);
}

}  // namespace linkcpp::client
