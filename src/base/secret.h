#pragma once
// What secrets need: bytes that nobody can guess, keyed digests, and a comparison that does not tell where it stopped.

#include "base/digest.h"

#include <string_view>

namespace linkcpp {

Bytes random_bytes(size_t size);
/// HMAC-SHA256 (RFC 2104).
Digest hmac_sha256(ByteSpan key, ByteSpan message);
bool equal_secrets(ByteSpan a, ByteSpan b);

inline ByteSpan bytes_of_text(std::string_view text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace linkcpp
