#pragma once
// Where a hub is: "http://host:port" or "https://host:port". Plain values.

#include "base/status.h"

#include <cstdint>
#include <string>

namespace linkcpp::client {

struct HubUrl {
    bool tls = false;
    std::string host;
    uint16_t port = 0;
    bool operator==(const HubUrl&) const = default;

    std::string str() const;          ///< "http://127.0.0.1:19000"
    std::string folder_name() const;  ///< "127.0.0.1_19000": what belongs to this hub lies in a folder of this name
    /// Scheme "http" when there is none; ports 80 and 443, or 19000 without a scheme, when there is none. Errors:
    /// invalid_argument (another scheme, a path, a name and password).
    static Result<HubUrl> parse(const std::string& text);
};

}  // namespace linkcpp::client
