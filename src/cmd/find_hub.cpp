#include "cmd/find_hub.h"

#include "base/log.h"
#include "client/discovery.h"

namespace linkcpp::cmd {

Result<client::HubUrl> find_hub(const std::string& text) {
    if (text != "auto") return client::HubUrl::parse(text);
    Result<client::HubUrl> hub = client::discover_hub();
    if (hub.ok()) log_info("found the hub {}", hub->str());
    return hub;
}

}  // namespace linkcpp::cmd
