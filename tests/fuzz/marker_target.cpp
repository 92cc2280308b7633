// The marker at the head of a hole: what is accepted has one encoding, its own bytes.
//
// Input: one byte of options, then the head of a tensor. Bit 0: make the checksum right (a fuzzer cannot).
#include "fuzz/check.h"
#include "moe/hole_marker.h"

#include <algorithm>

using namespace linkcpp;
using fuzz::require;

namespace {

constexpr size_t at_count = 28, prefix_bytes = 64, checksum_bytes = 32;

void repair(Bytes& head) {
    if (head.size() < prefix_bytes) return;
    const size_t size = moe::hole_marker_size(from_little_endian<uint32_t>(head.data() + at_count));
    if (size > head.size()) return;
    const Digest checksum = sha256(ByteSpan(head).first(size - checksum_bytes));
    std::copy(checksum.bytes.begin(), checksum.bytes.end(),
              head.begin() + static_cast<ptrdiff_t>(size - checksum_bytes));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteSpan input(data, size);
    const auto options = fuzz::cut<uint8_t>(input);
    Bytes head(input.begin(), input.end());
    if (options & 1) repair(head);
    const auto marker = moe::decode_hole_marker(head);
    if (!marker.ok() || !*marker) return 0;
    const Bytes again = moe::encode_hole_marker(**marker);
    require(again.size() <= head.size() && std::equal(again.begin(), again.end(), head.begin()),
            "a marker encodes to its own bytes");
    return 0;
}
