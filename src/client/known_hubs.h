#pragma once
// The keys of hubs, remembered from the first time one was spoken to: a file with a line "URL KEY" each.

#include "base/signing_key.h"
#include "client/url.h"

namespace linkcpp::client {

/// Ok when `key` is the one remembered for this hub, or none was and it is now. Errors: mismatch (another key), io.
Status check_known_hub(const std::string& path, const HubUrl& url, const PublicKey& key);

}  // namespace linkcpp::client
