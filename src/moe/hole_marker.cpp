#include "moe/hole_marker.h"

#include "moe/expert_tensor.h"

#include <algorithm>
#include <fmt/format.h>
#include <string_view>

namespace linkcpp::moe {

namespace {

// 16 bytes that no quantised weights begin with by chance. The line ends and the control-Z show a text conversion.
constexpr std::string_view magic("linkcpp:hole\r\n\x1a\0", 16);
constexpr uint32_t version = 1;
constexpr size_t prefix_bytes = 64;  // magic, version, kind, layer, count, fingerprint
constexpr size_t digest_bytes = 32;

ByteSpan magic_bytes() { return {reinterpret_cast<const uint8_t*>(magic.data()), magic.size()}; }

Digest read_digest(ByteReader& in) {
    Digest digest;
    const ByteSpan raw = in.take(digest.bytes.size());
    std::copy(raw.begin(), raw.end(), digest.bytes.begin());
    return digest;
}

Status corrupt(std::string message) { return {Code::corrupt, "hole marker: " + std::move(message)}; }

}  // namespace

size_t hole_marker_size(size_t n_expert) { return prefix_bytes + n_expert * digest_bytes + digest_bytes; }

Bytes encode_hole_marker(const HoleMarker& marker) {
    ByteWriter out;
    out.raw(magic_bytes());
    out.u32(version);
    out.u32(marker.kind);
    out.u32(marker.layer);
    out.u32(static_cast<uint32_t>(marker.digests.size()));
    out.raw(marker.model_fingerprint.bytes);
    for (const Digest& digest : marker.digests)
        out.raw(digest.bytes);
    out.raw(sha256(out.bytes()).bytes);
    return out.take();
}

Result<std::optional<HoleMarker>> decode_hole_marker(ByteSpan head) {
    if (head.size() < magic.size() || !std::equal(magic.begin(), magic.end(), head.begin(),
                                                  [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; })) {
        return std::optional<HoleMarker>();
    }
    ByteReader in(head.subspan(magic.size()));
    const uint32_t their_version = in.u32();
    const uint32_t kind = in.u32();
    HoleMarker marker;
    marker.layer = in.u32();
    const uint32_t n_expert = in.u32();
    marker.model_fingerprint = read_digest(in);
    if (!in.ok()) return corrupt("cut short");
    if (their_version != version) {
        return Status(Code::unsupported,
                      fmt::format("hole marker: version {}; version {} is supported", their_version, version));
    }
    if (n_expert > max_experts || head.size() < hole_marker_size(n_expert)) {
        return corrupt(fmt::format("{} digests do not fit", n_expert));
    }
    for (uint32_t i = 0; i < n_expert; ++i)
        marker.digests.push_back(read_digest(in));
    if (sha256(head.first(hole_marker_size(n_expert) - digest_bytes)) != read_digest(in))
        return corrupt("wrong checksum");
    if (kind > UINT8_MAX || !TensorKind::from_code(static_cast<uint8_t>(kind))) {
        return corrupt(fmt::format("unknown tensor kind {}", kind));
    }
    marker.kind = static_cast<uint8_t>(kind);
    return std::optional(std::move(marker));
}

}  // namespace linkcpp::moe
