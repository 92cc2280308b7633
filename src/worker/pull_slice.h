#pragma once
// A leased slice from the hub to the disk: every slab compared with the hub's signed manifest as it arrives, resumed where an
// earlier attempt ended (client/pull.h). Any thread.

#include "client/hub_api.h"

#include <atomic>

namespace linkcpp::worker {

/// `hub`: the key that the manifest must be signed with. Errors: mismatch (another key); those of fetch_manifest(),
/// plan_slice_pull() and pull().
Status pull_slice(const client::HubUrl& url, const client::HttpSettings& http, const PublicKey& hub,
                  const client::Segment& what, const std::string& path, std::atomic<uint64_t>& arrived,
                  const std::atomic<bool>& cancelled);

}  // namespace linkcpp::worker
