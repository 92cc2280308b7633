#pragma once
// The value of `--hub` where it may be "auto": the hub of the local network.

#include "client/url.h"

namespace linkcpp::cmd {

/// HubUrl::parse, or for "auto" client::discover_hub, with a log line that names what was found.
Result<client::HubUrl> find_hub(const std::string& text);

}  // namespace linkcpp::cmd
