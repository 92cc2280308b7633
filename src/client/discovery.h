#pragma once
// Hubs that announce themselves on the local network (DNS-SD over multicast DNS). Anybody on the network can announce
// anything, so nothing is taken over but an address that a worker could really use; who answers there is checked by the
// hub's key, as always. discovery_avahi.cpp asks the network, discovery_none.cpp is built where there is no library.

#include "base/clock.h"
#include "client/url.h"

#include <string>
#include <vector>

namespace linkcpp::client {

/// As somebody on the network said it.
struct Announcement {
    std::string address;  ///< IPv4
    uint16_t port = 0;
    std::vector<std::string> txt;  ///< "key=value"
    bool over_loopback = false;    ///< it came from this machine, and only this machine heard it
};

/// Errors: invalid_argument (not the address of a machine, no port, no scheme that we speak, or two).
Result<HubUrl> hub_of(const Announcement& announcement);

/// The hub, if all that were found are one. Errors: not_found, invalid_argument (several: the message lists them).
Result<HubUrl> only_hub(std::vector<HubUrl> found, Duration limit);

/// Asks the network; returns soon after the first answer. Errors: those of only_hub, unsupported (built without the
/// library), io (multicast DNS cannot be used here).
Result<HubUrl> discover_hub(Duration limit = std::chrono::seconds(5));

}  // namespace linkcpp::client
