#include "client/discovery.h"

namespace linkcpp::client {

Result<HubUrl> discover_hub(Duration) {
    return {Code::unsupported, "this program was built without mDNS, so it cannot look for a hub; name it with --hub "
                               "http://HOST:19000"};
}

}  // namespace linkcpp::client
