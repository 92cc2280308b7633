#pragma once
// Bytes as lower-case hexadecimal digits, the way keys, digests and ids are written in JSON and shown to people.

#include "base/bytes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace linkcpp {

std::string to_hex(ByteSpan bytes);
/// Lower or upper case; nullopt for an odd number of digits or anything that is not one.
std::optional<Bytes> from_hex(std::string_view text);
/// The same, of exactly N bytes.
template <size_t N>
std::optional<std::array<uint8_t, N>> from_hex_array(std::string_view text) {
    const std::optional<Bytes> bytes = from_hex(text);
    if (!bytes || bytes->size() != N) return std::nullopt;
    std::array<uint8_t, N> array;
    std::copy(bytes->begin(), bytes->end(), array.begin());
    return array;
}

}  // namespace linkcpp
