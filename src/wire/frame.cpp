#include "wire/frame.h"

#include "wire/checksum.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>

namespace linkcpp::wire {

namespace {

// Offsets of the header's fields; the table is in docs/PROTOCOL.md.
constexpr size_t at_version = 4, at_type = 6, at_flags = 7, at_request = 8, at_slice = 16, at_layer = 32, at_rows = 36,
                 at_row_offset = 40, at_attempt = 44, at_reserved = 46, at_time = 48, at_length = 52, at_checksum = 56;
static_assert(at_checksum + sizeof(uint64_t) == header_bytes);

/// Bytes that are received in place: fewer are not worth it, and more would keep other connections waiting.
constexpr size_t min_room = 16 << 10, max_room = 1 << 20;

bool known(uint8_t type) {
    return type >= static_cast<uint8_t>(FrameType::hello) && type <= static_cast<uint8_t>(FrameType::goaway);
}

/// Frames that two ends must understand before, or without, agreeing on a version.
bool of_all_versions(FrameType type) {
    return type == FrameType::hello || type == FrameType::welcome || type == FrameType::goaway;
}

FrameHeader parse_header(const uint8_t* raw) {
    FrameHeader header;
    header.version = from_little_endian<uint16_t>(raw + at_version);
    header.type = static_cast<FrameType>(raw[at_type]);
    header.flags = raw[at_flags];
    header.request = from_little_endian<uint64_t>(raw + at_request);
    std::copy_n(raw + at_slice, header.slice.size(), header.slice.begin());
    header.layer = from_little_endian<uint32_t>(raw + at_layer);
    header.rows = from_little_endian<uint32_t>(raw + at_rows);
    header.row_offset = from_little_endian<uint32_t>(raw + at_row_offset);
    header.attempt = from_little_endian<uint16_t>(raw + at_attempt);
    header.time_allowed_ms = from_little_endian<uint32_t>(raw + at_time);
    return header;
}

Status check_header(const uint8_t* raw, uint16_t version, uint32_t max_payload) {
    const uint8_t type = raw[at_type];
    if (!known(type)) return {Code::corrupt, fmt::format("a frame of unknown type {}", type)};
    const uint16_t theirs = from_little_endian<uint16_t>(raw + at_version);
    const bool spoken = version ? theirs == version : theirs >= protocol_version_min && theirs <= protocol_version;
    if (!of_all_versions(static_cast<FrameType>(type)) && !spoken) {
        return {Code::mismatch, fmt::format("a frame of protocol version {}, expected {}", theirs,
                                            version ? version : protocol_version)};
    }
    const uint8_t flags = type == static_cast<uint8_t>(FrameType::result) ? flag_last_tile : 0;
    if ((raw[at_flags] & ~flags) != 0 || from_little_endian<uint16_t>(raw + at_reserved) != 0) {
        return {Code::corrupt, "a frame with reserved bits set"};
    }
    const uint32_t length = from_little_endian<uint32_t>(raw + at_length);
    if (length > max_payload) {
        return {Code::exhausted, fmt::format("a {} frame of {} bytes, over the cap of {}",
                                             frame_type_name(static_cast<FrameType>(type)), length, max_payload)};
    }
    return {};
}

}  // namespace

const char* frame_type_name(FrameType type) {
    switch (type) {
        case FrameType::hello: return "HELLO";
        case FrameType::welcome: return "WELCOME";
        case FrameType::program: return "PROGRAM";
        case FrameType::compute: return "COMPUTE";
        case FrameType::result: return "RESULT";
        case FrameType::refuse: return "REFUSE";
        case FrameType::credit: return "CREDIT";
        case FrameType::ping: return "PING";
        case FrameType::pong: return "PONG";
        case FrameType::goaway: return "GOAWAY";
    }
    return "unknown";
}

void seal_frame(const FrameHeader& header, Bytes& frame) { seal_frame(header, frame, {}); }

void seal_frame(const FrameHeader& header, Bytes& head, ByteSpan rest) {
    assert(head.size() >= header_bytes && head.size() + rest.size() - header_bytes <= max_payload_limit);
    uint8_t* raw = head.data();
    std::fill_n(raw, header_bytes, uint8_t{0});
    std::copy(magic.begin(), magic.end(), raw);
    to_little_endian(header.version, raw + at_version);
    raw[at_type] = static_cast<uint8_t>(header.type);
    raw[at_flags] = header.flags;
    to_little_endian(header.request, raw + at_request);
    std::copy(header.slice.begin(), header.slice.end(), raw + at_slice);
    to_little_endian(header.layer, raw + at_layer);
    to_little_endian(header.rows, raw + at_rows);
    to_little_endian(header.row_offset, raw + at_row_offset);
    to_little_endian(header.attempt, raw + at_attempt);
    to_little_endian(header.time_allowed_ms, raw + at_time);
    to_little_endian(static_cast<uint32_t>(head.size() + rest.size() - header_bytes), raw + at_length);
    to_little_endian(rest.empty() ? checksum(head) : checksum(head, rest), raw + at_checksum);
}

void FrameReader::feed(ByteSpan bytes) {
    if (!error_.ok() || bytes.empty()) return;
    // One past our end another allocation may begin.
    const bool in_place = end_ < buffer_.size() && bytes.data() == buffer_.data() + end_;
    if (!in_place) {
        make_room(unfinished() + bytes.size());
        std::memcpy(buffer_.data() + end_, bytes.data(), bytes.size());
    }
    end_ += bytes.size();
}

/// For `size` bytes from the first one that is still needed.
void FrameReader::make_room(size_t size) {
    // What is still needed is less than a frame, so this moves at most the head of one.
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, unfinished());
    end_ -= std::exchange(begin_, 0);
    if (buffer_.size() < size) buffer_.resize(size);
}

std::span<uint8_t> FrameReader::room() {
    if (!error_.ok() || unfinished() < header_bytes) return {};
    const size_t wanted = std::min(buffer_.size(), begin_ + unfinished_size()) - end_;
    if (wanted < min_room) return {};
    return std::span(buffer_).subspan(end_, std::min(wanted, max_room));
}

size_t FrameReader::unfinished_size() const {
    if (unfinished() < header_bytes) return header_bytes;
    return header_bytes + from_little_endian<uint32_t>(buffer_.data() + begin_ + at_length);
}

void FrameReader::trim() {
    if (unfinished() != 0) return;
    decltype(buffer_)().swap(buffer_);
    begin_ = end_ = 0;
}

Status FrameReader::fail(Status error) {
    error_ = std::move(error);
    decltype(buffer_)().swap(buffer_);
    begin_ = end_ = 0;
    return error_;
}

Result<std::optional<Frame>> FrameReader::next() {
    if (!error_.ok()) return error_;
    const size_t have = unfinished();
    uint8_t* raw = buffer_.data() + begin_;
    // A stranger (a browser, a port scanner) shows in the first bytes.
    if (!std::equal(raw, raw + std::min(have, magic.size()), magic.begin())) {
        return fail({Code::corrupt, "not this protocol: a frame does not start with LCPP"});
    }
    if (have < header_bytes) return std::optional<Frame>();
    if (Status status = check_header(raw, version_, max_payload_); !status.ok()) return fail(std::move(status));

    const size_t size = header_bytes + from_little_endian<uint32_t>(raw + at_length);
    if (have < size) {
        // In large steps, because a payload should not be copied again and again while it grows; but never far ahead of
        // what arrived, because a header alone must not cost the memory that it announces. The room is kept, so
        // that later frames of that size are copied once.
        const size_t want = std::min(size, std::max<size_t>(4 * have, 1u << 18));
        make_room(want);
        return std::optional<Frame>();
    }
    const uint64_t expected = from_little_endian<uint64_t>(raw + at_checksum);
    to_little_endian<uint64_t>(0, raw + at_checksum);
    if (checksum({raw, size}) != expected) {
        return fail({Code::corrupt, fmt::format("a {} frame whose checksum is wrong",
                                                frame_type_name(static_cast<FrameType>(raw[at_type])))});
    }
    begin_ += size;
    return std::optional<Frame>(Frame{parse_header(raw), ByteSpan(raw + header_bytes, size - header_bytes)});
}

}  // namespace linkcpp::wire
