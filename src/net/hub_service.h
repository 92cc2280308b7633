#pragma once
// What hub and clients agree on when a hub announces itself on the local network: a DNS-SD service whose TXT record says
// "version=…" and "scheme=http" or "scheme=https".

namespace linkcpp::net {

inline constexpr const char* hub_service_type = "_linkcpp._tcp";
inline constexpr const char* hub_service_version = "version";
inline constexpr const char* hub_service_scheme = "scheme";

}  // namespace linkcpp::net
