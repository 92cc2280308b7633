#include "base/log.h"
#include "hub/announcement.h"
#include "net/hub_service.h"

#include <avahi-common/error.h>
#include <avahi-common/thread-watch.h>
#include <avahi-core/core.h>
#include <avahi-core/log.h>
#include <avahi-core/publish.h>
#include <avahi-core/rr.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <set>

namespace linkcpp::hub {

namespace {

/// Somebody who claims every name we take shall not keep us busy.
constexpr int max_renames = 8;
constexpr size_t id_length = 16;
/// How often the machine is asked for its addresses: they come late where DHCP is slow, and change.
constexpr int seconds_between_looks = 10;

/// Interface and IPv4 address in network byte order.
using Place = std::pair<AvahiIfIndex, uint32_t>;

/// All places of one address, or of `everywhere` (then without those that only this machine reaches).
std::set<Place> places_of(const AvahiIPv4Address& address, bool everywhere) {
    std::set<Place> places;
    ifaddrs* all = nullptr;
    if (getifaddrs(&all) != 0) return places;
    for (const ifaddrs* one = all; one; one = one->ifa_next) {
        if (!one->ifa_addr || one->ifa_addr->sa_family != AF_INET) continue;
        const uint32_t here = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr;
        if (everywhere ? (one->ifa_flags & IFF_LOOPBACK) != 0 : here != address.address) continue;
        places.emplace(static_cast<AvahiIfIndex>(if_nametoindex(one->ifa_name)), here);
    }
    freeifaddrs(all);
    return places;
}

/// Before the thread starts, everything happens on the thread of start(); after that, all but the destructor on its own.
class AvahiAnnouncement final : public Announcement {
  public:
    explicit AvahiAnnouncement(const AnnouncementSettings& settings)
        : settings_(settings), everywhere_(settings.listening.host == "0.0.0.0" || settings.listening.host == "::") {}
    ~AvahiAnnouncement() override;
    Status start();

  private:
    static void on_server(AvahiServer* server, AvahiServerState state, void* self);
    static void on_group(AvahiServer* server, AvahiSEntryGroup*, AvahiEntryGroupState state, void* self);
    static void on_look(AvahiTimeout* timeout, void* self);
    std::set<Place> look() const { return places_of(address_.data.ipv4, everywhere_); }
    void publish(AvahiServer* server);
    int add_address(AvahiServer* server, AvahiIfIndex interface, uint32_t ipv4);
    int add_records(AvahiServer* server);
    void rename(AvahiServer* server);
    std::string service() const;
    std::string host() const;
    static void give_up(int error);

    const AnnouncementSettings settings_;
    const bool everywhere_;
    AvahiAddress address_{};  ///< unless everywhere_
    std::set<Place> places_;  ///< what is, or is about to be, announced
    int n_renames_ = 0;
    bool running_ = false;
    AvahiThreadedPoll* poll_ = nullptr;
    AvahiServer* server_ = nullptr;
    AvahiSEntryGroup* group_ = nullptr;  ///< belongs to the server
};

AvahiAnnouncement::~AvahiAnnouncement() {
    if (running_) avahi_threaded_poll_stop(poll_);
    if (server_) avahi_server_free(server_);  // says goodbye
    if (poll_) avahi_threaded_poll_free(poll_);
}

Status AvahiAnnouncement::start() {
    avahi_set_log_function([](AvahiLogLevel, const char* text) { log_debug("mDNS: {}", text); });
    if (!everywhere_ && !avahi_address_parse(settings_.listening.host.c_str(), AVAHI_PROTO_INET, &address_)) {
        return {Code::unsupported, settings_.listening.host +
                                       " is an IPv6 address, which is not announced; listen on an IPv4 address, "
                                       "0.0.0.0 or [::]"};
    }
    poll_ = avahi_threaded_poll_new();
    if (!poll_) return {Code::exhausted, "no memory to announce the hub with"};
    const AvahiPoll* poll = avahi_threaded_poll_get(poll_);
    AvahiServerConfig config;
    avahi_server_config_init(&config);
    config.use_ipv6 = 0;
    // Name and reverse records of the machine belong to its own responder, if it has one, or to another hub.
    config.publish_addresses = config.publish_hinfo = config.publish_workstation = config.publish_domain = 0;
    config.enable_wide_area = 0;
    int error = 0;
    server_ = avahi_server_new(poll, &config, on_server, this, &error);
    avahi_server_config_free(&config);
    if (!server_) return {Code::io, fmt::format("multicast DNS cannot be used here: {}", avahi_strerror(error))};
    timeval first;
    poll->timeout_new(poll, avahi_elapse_time(&first, seconds_between_looks * 1000, 0), on_look, this);
    running_ = avahi_threaded_poll_start(poll_) == 0;
    if (!running_) return {Code::exhausted, "no thread to announce the hub with"};
    return {};
}

void AvahiAnnouncement::on_server(AvahiServer* server, AvahiServerState state, void* self) {
    if (state == AVAHI_SERVER_RUNNING) static_cast<AvahiAnnouncement*>(self)->publish(server);
    if (state == AVAHI_SERVER_FAILURE) give_up(avahi_server_errno(server));
}

void AvahiAnnouncement::on_group(AvahiServer* server, AvahiSEntryGroup*, AvahiEntryGroupState state, void* self) {
    auto& announcement = *static_cast<AvahiAnnouncement*>(self);
    if (state == AVAHI_ENTRY_GROUP_ESTABLISHED)
        log_info("announced on the local network as \"{}\"", announcement.service());
    if (state == AVAHI_ENTRY_GROUP_COLLISION) announcement.rename(server);
    if (state == AVAHI_ENTRY_GROUP_FAILURE) give_up(avahi_server_errno(server));
}

void AvahiAnnouncement::on_look(AvahiTimeout* timeout, void* self) {
    auto& announcement = *static_cast<AvahiAnnouncement*>(self);
    if (announcement.n_renames_ <= max_renames && announcement.look() != announcement.places_)
        announcement.publish(announcement.server_);
    timeval next;
    avahi_threaded_poll_get(announcement.poll_)
        ->timeout_update(timeout, avahi_elapse_time(&next, seconds_between_looks * 1000, 0));
}

void AvahiAnnouncement::publish(AvahiServer* server) {
    places_ = look();
    if (group_) {
        avahi_s_entry_group_reset(group_);
    } else {
        group_ = avahi_s_entry_group_new(server, on_group, this);
    }
    if (!group_) return give_up(avahi_server_errno(server));
    if (places_.empty()) return;  // until an address comes
    int error = add_records(server);
    if (error >= 0) error = avahi_s_entry_group_commit(group_);
    if (error < 0) give_up(error);
}

int AvahiAnnouncement::add_address(AvahiServer* server, AvahiIfIndex interface, uint32_t ipv4) {
    AvahiRecord* record =
        avahi_record_new_full(host().c_str(), AVAHI_DNS_CLASS_IN, AVAHI_DNS_TYPE_A, AVAHI_DEFAULT_TTL_HOST_NAME);
    if (!record) return AVAHI_ERR_NO_MEMORY;
    record->data.a.address.address = ipv4;
    constexpr auto flags = static_cast<AvahiPublishFlags>(AVAHI_PUBLISH_UNIQUE | AVAHI_PUBLISH_ALLOW_MULTIPLE);
    const int error = avahi_server_add(server, group_, interface, AVAHI_PROTO_INET, flags, record);
    avahi_record_unref(record);
    return error;
}

int AvahiAnnouncement::add_records(AvahiServer* server) {
    const std::string version = fmt::format("{}={}", net::hub_service_version, LINKCPP_VERSION);
    const std::string scheme = fmt::format("{}={}", net::hub_service_scheme, settings_.tls ? "https" : "http");
    std::set<AvahiIfIndex> interfaces;
    for (const auto& [interface, ipv4] : places_) {
        int error = add_address(server, interface, ipv4);
        if (error >= 0 && interfaces.insert(interface).second) {
            error = avahi_server_add_service(server, group_, interface, AVAHI_PROTO_INET,
                                             static_cast<AvahiPublishFlags>(0), service().c_str(),
                                             net::hub_service_type, nullptr, host().c_str(), settings_.listening.port,
                                             version.c_str(), scheme.c_str(), static_cast<char*>(nullptr));
        }
        if (error < 0) return error;
    }
    return 0;
}

void AvahiAnnouncement::rename(AvahiServer* server) {
    if (++n_renames_ > max_renames) {
        avahi_s_entry_group_reset(group_);
        return give_up(AVAHI_ERR_COLLISION);
    }
    publish(server);
}

std::string AvahiAnnouncement::service() const {
    const std::string name = "linkcpp hub " + settings_.id.substr(0, id_length);
    return n_renames_ == 0 ? name : fmt::format("{} #{}", name, n_renames_ + 1);
}

std::string AvahiAnnouncement::host() const {
    const std::string name = "linkcpp-hub-" + settings_.id.substr(0, id_length);
    return (n_renames_ == 0 ? name : fmt::format("{}-{}", name, n_renames_ + 1)) + ".local";
}

void AvahiAnnouncement::give_up(int error) {
    log_warning("the hub is not announced on the local network ({}); workers name it with --hub",
                avahi_strerror(error));
}

}  // namespace

Result<std::unique_ptr<Announcement>> Announcement::start(const AnnouncementSettings& settings) {
    auto announcement = std::make_unique<AvahiAnnouncement>(settings);
    LINKCPP_TRY(announcement->start());
    return std::unique_ptr<Announcement>(std::move(announcement));
}

}  // namespace linkcpp::hub
