#pragma once
// The hub tells the local network where it is (DNS-SD over multicast DNS), so that `--hub auto` finds it. A thread of
// its own answers for it. announcement_avahi.cpp does it, announcement_none.cpp is built where there is no library.

#include "base/status.h"
#include "net/loop.h"

#include <memory>

namespace linkcpp::hub {

struct AnnouncementSettings {
    net::Address listening;  ///< with the real port; 0.0.0.0 and :: mean all IPv4 addresses of this machine
    bool tls = false;
    std::string id;  ///< tells hubs apart, e.g. the fingerprint of the hub's key
};

class Announcement {
  public:
    /// Returns at once; the network hears of the hub about a second later. Signals are left to threads that do not block
    /// them. Errors: unsupported (built without the library, or an IPv6 address), exhausted, io.
    static Result<std::unique_ptr<Announcement>> start(const AnnouncementSettings& settings);

    virtual ~Announcement() = default;  ///< takes it back, and returns when the thread has ended
};

}  // namespace linkcpp::hub
