#pragma once
// The frame of the dispatch protocol: a fixed 64-byte header and a payload. docs/PROTOCOL.md is the specification, golden
// tests hold the two together. The layout of the header and of HELLO/WELCOME never changes between protocol versions.
// No I/O here: bytes in, frames out. A FrameReader belongs to one connection and one thread.

#include "base/bytes.h"
#include "base/floats.h"
#include "base/status.h"

#include <array>
#include <optional>

namespace linkcpp::wire {

constexpr uint16_t protocol_version = 1;      ///< what we speak
constexpr uint16_t protocol_version_min = 1;  ///< the oldest that we can speak
constexpr size_t header_bytes = 64;
constexpr std::array<uint8_t, 4> magic = {'L', 'C', 'P', 'P'};

/// Before the handshake is over a frame's payload is at most this.
constexpr uint32_t max_handshake_payload = 4096;
/// The most that any peer may announce as its cap: 4096 rows of n_embd 3072, 8 experts, as f32, fits three times over.
constexpr uint32_t max_payload_limit = 1u << 30;
constexpr uint32_t max_tile_rows = 64;

enum class FrameType : uint8_t {
    hello = 1,
    welcome = 2,
    program = 3,
    compute = 4,
    result = 5,
    refuse = 6,
    credit = 7,
    ping = 8,
    pong = 9,
    goaway = 10,
};
const char* frame_type_name(FrameType type);

/// The first 16 bytes of a slice's digest; all zero where a frame concerns no slice.
using SliceId = std::array<uint8_t, 16>;

constexpr uint8_t flag_last_tile = 1;  ///< RESULT: the request is complete with this tile

struct FrameHeader {
    uint16_t version = protocol_version;
    FrameType type = FrameType::ping;
    uint8_t flags = 0;
    uint64_t request = 0;  ///< chosen by the sender of COMPUTE/PROGRAM, echoed in RESULT/REFUSE
    SliceId slice{};
    uint32_t layer = 0;
    uint32_t rows = 0;        ///< COMPUTE: output rows asked for; RESULT: rows of this tile
    uint32_t row_offset = 0;  ///< RESULT: index of the tile's first row
    uint16_t attempt = 0;
    uint32_t time_allowed_ms = 0;  ///< COMPUTE: relative; 0 = no limit
    bool operator==(const FrameHeader&) const = default;
};

/// A complete frame, header and payload, ready to send. The payload length and the checksum (XXH3-64 over header and
/// payload, the checksum field taken as zero) are filled in. `frame` must start with header_bytes of room.
void seal_frame(const FrameHeader& header, Bytes& frame);
/// The same for a frame of which only the beginning lies in `head`; `rest` is to be sent right behind it.
void seal_frame(const FrameHeader& header, Bytes& head, ByteSpan rest);

struct Frame {
    FrameHeader header;
    ByteSpan payload;  ///< valid until the next call of the reader; not aligned
};

class FrameReader {
  public:
    explicit FrameReader(uint32_t max_payload = max_handshake_payload) : max_payload_(max_payload) {}

    void set_max_payload(uint32_t max_payload) { max_payload_ = max_payload; }
    /// From now on only frames of this version (HELLO, WELCOME and GOAWAY, whose layout is that of all versions, apart).
    void set_version(uint16_t version) { version_ = version; }
    /// Appends received bytes. Call next() until it has no more before the next feed(): then less than one frame is
    /// kept, and a payload is copied once, from the received bytes into the buffer.
    void feed(ByteSpan bytes);
    /// Where the next bytes of a long frame may be received: feed() need not copy what begins there. Empty: nowhere. Until
    /// the next call of anything else here.
    std::span<uint8_t> room();
    /// The next complete frame; nullopt: more bytes are needed. An error (corrupt: magic, unknown type, reserved bits,
    /// checksum; exhausted: payload over the cap; mismatch: version) is final: the connection must be closed.
    /// Length checks come before any allocation of that length.
    Result<std::optional<Frame>> next();
    /// Bytes of a frame that has begun and is not complete; 0 between frames.
    size_t unfinished() const { return end_ - begin_; }
    /// Bytes that the whole of that frame will have, as far as is known: at least a header.
    size_t unfinished_size() const;
    /// Memory taken. Between frames it can be given back: trim().
    size_t held_bytes() const { return buffer_.capacity(); }
    void trim();

  private:
    Status fail(Status error);
    void make_room(size_t size);

    std::vector<uint8_t, UnsetAllocator<uint8_t>> buffer_;
    size_t begin_ = 0, end_ = 0;  ///< the bytes of buffer_ that have come and that next() has not returned
    uint32_t max_payload_;
    uint16_t version_ = 0;  ///< 0: any that we can speak
    Status error_;          ///< the first error, for good
};

}  // namespace linkcpp::wire
