#include "worker/pull_slice.h"

#include "client/pull.h"

namespace linkcpp::worker {

Status pull_slice(const client::HubUrl& url, const client::HttpSettings& http, const PublicKey& hub,
                  const client::Segment& what, const std::string& path, std::atomic<uint64_t>& arrived,
                  const std::atomic<bool>& cancelled) {
    client::PullSettings settings;
    settings.http = http;
    settings.http.stop = &cancelled;
    settings.cancelled = &cancelled;
    settings.progress = [&arrived](uint64_t done, uint64_t, uint64_t) { arrived = done; };
    const auto manifest = client::fetch_manifest(url, what.model, settings.http);
    if (!manifest.ok()) return manifest.status();
    if (manifest->hub_key != hub)
        return {Code::mismatch, "the manifest of " + what.model + " is signed with another key than the hub's"};
    const moe::SliceRequest request{static_cast<int>(what.layer_begin), static_cast<int>(what.layer_end),
                                    static_cast<int>(what.expert_begin), static_cast<int>(what.expert_end)};
    const auto file = client::plan_slice_pull(manifest->manifest, what.model, request, path);
    if (!file.ok()) return file.status();
    return client::pull(url, {*file}, settings).status();
}

}  // namespace linkcpp::worker
