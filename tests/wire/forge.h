#pragma once
// Frames with one thing wrong and everything else right, the checksum included: what a hostile peer sends.

#include "wire/checksum.h"
#include "wire/messages.h"

#include <algorithm>

namespace linkcpp::wire::test {

// Offsets in a frame, see docs/PROTOCOL.md.
constexpr size_t at_version = 4, at_type = 6, at_flags = 7, at_request = 8, at_slice = 16, at_layer = 32, at_rows = 36,
                 at_row_offset = 40, at_attempt = 44, at_reserved = 46, at_time = 48, at_length = 52, at_checksum = 56;
constexpr size_t at_payload = header_bytes;

inline Bytes with_checksum(Bytes frame) {
    to_little_endian<uint64_t>(0, frame.data() + at_checksum);
    to_little_endian(checksum(frame), frame.data() + at_checksum);
    return frame;
}

/// A field changed.
template <typename T>
Bytes with(Bytes frame, size_t offset, T value) {
    to_little_endian(value, frame.data() + offset);
    return with_checksum(std::move(frame));
}

/// The payload cut or extended by zeros; the header says so.
inline Bytes with_payload_size(Bytes frame, size_t payload_bytes) {
    frame.resize(header_bytes + payload_bytes);
    return with(std::move(frame), at_length, static_cast<uint32_t>(payload_bytes));
}
inline Bytes shorter(Bytes frame, size_t by = 1) {
    const size_t size = frame.size() - header_bytes - by;
    return with_payload_size(std::move(frame), size);
}
inline Bytes longer(Bytes frame, size_t by = 1) {
    const size_t size = frame.size() - header_bytes + by;
    return with_payload_size(std::move(frame), size);
}

/// A frame of any type with a payload of any bytes.
inline Bytes frame_of(FrameType type, const Bytes& payload, FrameHeader header = {}) {
    Bytes frame(header_bytes + payload.size());
    std::copy(payload.begin(), payload.end(), frame.begin() + header_bytes);
    header.type = type;
    seal_frame(header, frame);
    return frame;
}

/// HELLO and WELCOME with strings of these lengths after `front` bytes of fixed fields, `tail` after them.
inline Bytes with_strings(const Bytes& frame, size_t front, size_t build, size_t numeric_class, size_t identity,
                          const Bytes& tail = {}) {
    ByteWriter payload;
    payload.raw(ByteSpan(frame).subspan(header_bytes, front));
    for (size_t size : {build, numeric_class, identity})
        payload.string16(std::string(size, 's'));
    payload.raw(tail);
    return frame_of(static_cast<FrameType>(frame[at_type]), payload.bytes());
}

}  // namespace linkcpp::wire::test
