#include "cmd/node_folder.h"

#include "net/loop.h"

#include <algorithm>
#include <cstdlib>

namespace linkcpp::cmd {

std::string default_node_folder(const client::HubUrl& hub) {
    std::string base = "linkcpp-worker-data";
    if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data) {
        base = std::string(data) + "/linkcpp/worker";
    } else if (const char* home = std::getenv("HOME"); home && *home) {
        base = std::string(home) + "/.local/share/linkcpp/worker";
    }
    std::string place = net::Address{hub.host, hub.port}.str();
    std::replace(place.begin(), place.end(), ':', '_');
    return base + "/" + place;
}

}  // namespace linkcpp::cmd
