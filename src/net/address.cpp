#include "net/loop.h"

#include <arpa/inet.h>
#include <charconv>
#include <fmt/format.h>

namespace linkcpp::net {

namespace {

bool parse_port(std::string_view text, uint16_t& port) {
    const char* end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, port);
    return error == std::errc() && stop == end && !text.empty();
}

bool is_number(std::string_view text) { return text.find_first_not_of("0123456789") == std::string_view::npos; }

}  // namespace

std::string Address::str() const {
    const bool ipv6 = host.find(':') != std::string::npos;
    return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

Result<Address> Address::parse(const std::string& text, const std::string& default_host) {
    const Status wrong(Code::invalid_argument,
                       fmt::format("'{}' is not an address; write HOST:PORT, [IPV6]:PORT or PORT", text));
    std::string host, port;
    if (text.starts_with('[')) {
        const size_t end = text.find("]:");
        if (end == std::string::npos) return wrong;
        host = text.substr(1, end - 1);
        port = text.substr(end + 2);
        in6_addr parsed;
        if (inet_pton(AF_INET6, host.c_str(), &parsed) != 1) return wrong;
    } else if (const size_t colon = text.find(':'); colon != std::string::npos) {
        host = text.substr(0, colon);
        port = text.substr(colon + 1);
    } else if (is_number(text)) {
        port = text;
    } else {
        return wrong;
    }
    Address address{host.empty() ? default_host : host, 0};
    if (!parse_port(port, address.port)) return wrong;
    return address;
}

bool Address::is_loopback() const {
    in_addr v4;
    if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    in6_addr v6;
    if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    return host == "localhost";
}

}  // namespace linkcpp::net
