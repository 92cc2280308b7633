#include "client/url.h"

#include "net/loop.h"

#include <algorithm>

namespace linkcpp::client {

std::string HubUrl::str() const { return (tls ? "https://" : "http://") + net::Address{host, port}.str(); }

std::string HubUrl::folder_name() const {
    std::string name = net::Address{host, port}.str();
    std::replace(name.begin(), name.end(), ':', '_');
    return name;
}

Result<HubUrl> HubUrl::parse(const std::string& text) {
    const Status wrong(Code::invalid_argument, "\"" + text +
                                                   "\" is not the address of a hub; give it as http://HOST:PORT or "
                                                   "https://HOST:PORT, without a path");
    if (text == "auto")
        return {Code::invalid_argument,
                "\"auto\" is not understood here; name the hub, http://HOST:19000 for instance"};
    HubUrl url;
    std::string rest = text;
    uint16_t default_port = 19000;
    if (const size_t scheme = text.find("://"); scheme != std::string::npos) {
        url.tls = text.starts_with("https://");
        if (!url.tls && !text.starts_with("http://")) return wrong;
        default_port = url.tls ? 443 : 80;
        rest = text.substr(scheme + 3);
    }
    while (rest.ends_with('/'))
        rest.pop_back();
    if (rest.empty() || rest.find_first_of("/?#@ \r\n\t") != std::string::npos) return wrong;
    const bool has_port =
        rest.find("]:") != std::string::npos || (rest.find(':') != std::string::npos && rest.front() != '[');
    auto address = net::Address::parse(has_port ? rest : rest + ":" + std::to_string(default_port));
    if (!address.ok() || address->port == 0) return wrong;
    url.host = address->host;
    url.port = address->port;
    return url;
}

}  // namespace linkcpp::client
