#pragma once
// Ranges as they stand in requests: "0:8" of layers and experts, and HTTP's own for bytes (RFC 9110, section 14). Pure
// functions.

#include "base/status.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

namespace linkcpp::hub {

/// "a:b", half-open; either may be left out (0, and -1 for "to the last"); "n" is n:n+1. Errors: invalid_argument
/// (anything but digits, reversed or empty ranges, numbers over nine digits).
Result<std::pair<int, int>> parse_index_range(std::string_view text);

/// What a Range header asks of `size` bytes.
struct ByteRange {
    enum class Kind { whole, part, unsatisfiable };
    Kind kind = Kind::whole;
    uint64_t begin = 0, end = 0;  ///< of a part, half-open
};
/// Several ranges, other units and what is no range at all are the whole, as RFC 9110 has it.
ByteRange parse_byte_range(std::string_view header, uint64_t size);

/// Is `etag` (with its quotes) in a list such as `"a", W/"b"` or `*`? By strong comparison.
bool etag_listed(std::string_view list, std::string_view etag);

}  // namespace linkcpp::hub
