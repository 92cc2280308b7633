#pragma once
// One file from a hub to the disk: resumed where an earlier attempt ended, tried again while the hub is away. The file has
// its final name only when it is whole; whether its bytes are right is the caller's to check.

#include "client/http_client.h"

#include <atomic>

namespace linkcpp::client {

struct DownloadSettings {
    HttpSettings http;
    Duration first_backoff = std::chrono::milliseconds(500), longest_backoff = std::chrono::seconds(30);
    int max_failures = 20;  ///< one after the other, without a byte in between
};

/// `target`: "/api/…". `path`: beside it lie "<path>.part", what has arrived, and "<path>.etag", of which version.
/// Errors: unavailable or timeout (the hub stayed away; or `cancelled` became true), not_found and the like (the hub
/// refuses, with its words), io, exhausted (disk full).
Status download(const HubUrl& url, const std::string& target, const std::string& path, const DownloadSettings& settings,
                std::atomic<uint64_t>& arrived, const std::atomic<bool>& cancelled);

}  // namespace linkcpp::client
