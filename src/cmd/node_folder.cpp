#include "cmd/node_folder.h"

#include "net/loop.h"

#include <algorithm>
#include <cstdlib>

namespace linkcpp::cmd {

namespace {

std::string data_folder(const std::string& role) {
    if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data) return std::string(data) + "/linkcpp/" + role;
    if (const char* home = std::getenv("HOME"); home && *home)
        return std::string(home) + "/.local/share/linkcpp/" + role;
    return "linkcpp-" + role + "-data";
}

}  // namespace

std::string default_node_folder(const client::HubUrl& hub) { return data_folder("worker") + "/" + hub.folder_name(); }

std::string default_backbone_folder() { return data_folder("backbone"); }

std::string default_backbone_folder(const client::HubUrl& hub) {
    return default_backbone_folder() + "/" + hub.folder_name();
}

}  // namespace linkcpp::cmd
