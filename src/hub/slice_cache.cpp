#include "hub/slice_cache.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::hub {

namespace {

/// A header takes 75 bytes per slab: some 3 MB for all experts of a large model.
constexpr size_t max_cache_bytes = 16 << 20;

const uint8_t* zeros() {
    static const uint8_t bytes[moe::gguf_max_alignment] = {};
    return bytes;
}

bool same(const moe::SliceRequest& a, const moe::SliceRequest& b) {
    return a.layer_begin == b.layer_begin && a.layer_end == b.layer_end && a.expert_begin == b.expert_begin &&
           a.expert_end == b.expert_end;
}

}  // namespace

Result<Content> SliceCache::find_or_make(const moe::SliceRequest& request) {
    {
        const std::lock_guard lock(mutex_);
        const auto found = std::find_if(entries_.begin(), entries_.end(),
                                        [&](const Entry& entry) { return same(entry.request, request); });
        if (found != entries_.end()) {
            entries_.splice(entries_.begin(), entries_, found);
            return entries_.front().content;
        }
    }
    auto made = make(request);
    if (!made.ok()) return made.status();
    Content content = made->content;
    const std::lock_guard lock(mutex_);
    n_bytes_ += made->n_bytes;
    entries_.push_front(std::move(*made));
    while (n_bytes_ > max_cache_bytes && entries_.size() > 1) {
        n_bytes_ -= entries_.back().n_bytes;
        entries_.pop_back();
    }
    return content;
}

Result<SliceCache::Entry> SliceCache::make(const moe::SliceRequest& request) const {
    const auto plan = moe::plan_slice(outline_, request);
    if (!plan.ok()) return plan.status();
    const auto header = std::make_shared<const Bytes>(moe::slice_header(*plan).bytes);
    Entry entry{request, {}, header->size()};
    Content& content = entry.content;
    content.keeps_pieces = header;
    content.pieces.push_back({-1, header->data(), 0, header->size()});
    for (const moe::SourceRange& range : plan->ranges) {
        if (range.file == moe::SourceRange::padding) {
            content.pieces.push_back({-1, zeros(), 0, range.bytes});
        } else {
            content.pieces.push_back({model_.file(range.file).fd(), nullptr, range.offset, range.bytes});
        }
    }
    entry.n_bytes += content.pieces.size() * sizeof(Piece);
    // The header holds the digest of every slab, so its digest stands for all bytes.
    content.etag = '"' + sha256(*header).hex() + '"';
    const moe::SliceInfo& info = plan->info;
    content.file_name = fmt::format("layers-{}-{}-experts-{}-{}.gguf", info.layer_begin, info.layer_end,
                                    info.expert_begin, info.expert_end);
    return entry;
}

}  // namespace linkcpp::hub
