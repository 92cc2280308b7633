#pragma once
// Where a node keeps its key and what it holds: one folder for each hub, because slices and the hub's key belong to it.

#include "client/url.h"

#include <string>

namespace linkcpp::cmd {

/// Under the user's data folder ($XDG_DATA_HOME, else ~/.local/share), else beside where the program was started.
std::string default_node_folder(const client::HubUrl& hub);
/// The same for this machine's backbones; and the folder that holds those of all hubs.
std::string default_backbone_folder(const client::HubUrl& hub);
std::string default_backbone_folder();

}  // namespace linkcpp::cmd
