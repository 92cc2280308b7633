#pragma once
// The payloads, one struct per frame type, with their encoders and decoders. Decoders check every length and count
// against the payload and against caps before they allocate; a decoder that returns a value returned a well-formed one.
// Pure functions; any thread.

#include "base/floats.h"
#include "wire/frame.h"

#include <string>
#include <vector>

namespace linkcpp::wire {

// Longest strings of a handshake, so that a WELCOME with all its slices fits into max_handshake_payload. An encoder cuts
// `build`, and leaves out a numeric class or identity that is longer: half of one would be another one.
constexpr size_t max_build_bytes = 128, max_numeric_class_bytes = 512, max_identity_bytes = 352;
/// Layers and experts are counted below these; an offer beyond them is refused.
constexpr uint32_t max_layers = 1u << 16, max_experts = 1u << 16;
constexpr size_t max_program_code = 4096;
constexpr size_t max_message_bytes = 1000;

/// HELLO, from the side that connected (a backbone). Layout fixed for all versions.
struct Hello {
    uint16_t version_min = protocol_version_min, version_max = protocol_version;
    uint32_t max_payload = 0;   ///< largest payload this side accepts, bytes
    uint64_t credit = 0;        ///< bytes of RESULT payload the other side may have under way
    std::string build;          ///< "linkcpp 0.1.0, ggml 0.23.0 (80fb11a)", for people
    std::string numeric_class;  ///< see docs/PROTOCOL.md; equal strings mean bit-equal results, empty equals none
    std::string identity;       ///< proof of identity; empty where the transport vouches (loopback)
    bool operator==(const Hello&) const = default;
};

struct SliceOffer {
    SliceId slice{};
    uint32_t layer_begin = 0, layer_end = 0, expert_begin = 0, expert_end = 0;
    bool operator==(const SliceOffer&) const = default;
};

/// WELCOME, the answer. Layout fixed for all versions. At most 96 slices.
struct Welcome {
    uint16_t version = protocol_version;  ///< the version that both speak from now on
    uint32_t max_payload = 0;
    uint64_t credit = 0;  ///< bytes of COMPUTE payload the other side may have under way
    std::string build, numeric_class, identity;
    std::vector<SliceOffer> slices;
    bool operator==(const Welcome&) const = default;
};
constexpr size_t max_slices_offered = 96;

/// PROGRAM: gives an expert program (bytes, see moe/program.h) a number for this session and the layers
/// [layer_begin, layer_end) of the slice in the header.
struct ProgramFrame {
    uint32_t program = 0;
    uint32_t layer_begin = 0, layer_end = 0;
    Bytes code;
    bool operator==(const ProgramFrame&) const = default;
};

enum class Output : uint8_t {
    rows = 0,  ///< one output row per pair, in the order of the pairs
    sums = 1,  ///< one output row per group of pairs: the sum, in pair order, of (weight times) the pairs' rows
};

/// COMPUTE. A pair is one (activation row, expert) of work. header.rows = output rows: n_pairs, or the number of groups.
struct Compute {
    uint32_t program = 0;
    Output output = Output::rows;
    uint32_t n_x = 0;              ///< activation rows
    uint32_t n_in = 0;             ///< width of an activation row
    uint32_t n_rows_out = 0;       ///< output rows
    std::vector<uint32_t> x_row;   ///< [n_pairs] index of the pair's activation row
    std::vector<uint32_t> expert;  ///< [n_pairs] expert, counted from the slice's expert_begin
    std::vector<uint32_t> group;   ///< [n_pairs] sums only: index of the output row, not decreasing, every row occurs
    std::vector<float> weight;     ///< [n_pairs] sums only, or empty: router weights
    Floats x;                      ///< [n_in, n_x]
    bool operator==(const Compute&) const = default;
};

/// A COMPUTE frame that is put together where it is sent from, so that activations are copied once.
class ComputeFrame {
  public:
    ComputeFrame() = default;
    /// Takes everything of `compute` but `program` and x, and makes room for its n_x activation rows.
    explicit ComputeFrame(const Compute& compute);
    /// The next activation rows. x: [n_in, any number].
    void add_rows(std::span<const float> x);

    uint32_t n_pairs() const { return n_pairs_; }
    uint32_t n_rows_out() const { return n_rows_out_; }
    uint64_t payload_bytes() const { return payload_bytes_; }  ///< with all rows
    /// The frame, once all rows are there; as encode() does it.
    Bytes seal(FrameHeader header, uint32_t program) &&;

  private:
    ByteWriter out_;
    uint32_t n_pairs_ = 0, n_rows_out_ = 0;
    uint64_t payload_bytes_ = 0;
};

struct ResultTile {
    uint32_t queue_us = 0, compute_us = 0;  ///< spent at the worker, for statistics
    uint32_t n_out = 0;                     ///< width of a row
    ByteSpan rows;                          ///< [n_out, header.rows] f32, as it lies in the frame
};

enum class RefuseCode : uint16_t {
    busy = 1,
    draining = 2,
    unknown_slice = 3,
    unknown_program = 4,
    no_time_left = 5,
    malformed = 6,
    version = 7,
    unsupported = 8,
    not_allowed = 9,
    failed = 10,
};
const char* refuse_code_name(RefuseCode code);

struct Refuse {
    RefuseCode code = RefuseCode::busy;
    std::string message;  ///< at most max_message_bytes are sent
    bool operator==(const Refuse&) const = default;
};

struct Credit {
    uint64_t bytes = 0;
    bool operator==(const Credit&) const = default;
};
struct Ping {
    uint64_t nonce = 0;
    bool operator==(const Ping&) const = default;
};
struct Pong {
    uint64_t nonce = 0;
    uint64_t rows_done = 0;         ///< pairs computed since the worker started: progress of work that is under way
    uint32_t rows_queued = 0;       ///< pairs waiting or being computed
    uint8_t battery_percent = 255;  ///< 255: unknown or mains
    int8_t temperature_c = 127;     ///< 127: unknown
    bool operator==(const Pong&) const = default;
};
/// Layout fixed for all versions. A reason that this version does not know is read as `failed`.
struct GoAway {
    RefuseCode reason = RefuseCode::draining;
    std::string message;
    bool operator==(const GoAway&) const = default;
};

// Encoders return a complete frame. `header` carries request, slice, layer, attempt…; type, rows and length are set here.
Bytes encode(const Hello&);
Bytes encode(const Welcome&);
Bytes encode(FrameHeader header, const ProgramFrame&);
Bytes encode(FrameHeader header, const Compute&);
/// rows: [n_out, n_rows], n_rows <= max_tile_rows.
Bytes encode_result(FrameHeader header, uint32_t queue_us, uint32_t compute_us, uint32_t n_out,
                    std::span<const float> rows);
/// The same without the rows, whose bytes are to be sent right behind it.
Bytes encode_result_head(FrameHeader header, uint32_t queue_us, uint32_t compute_us, uint32_t n_out,
                         std::span<const float> rows);
Bytes encode(FrameHeader header, const Refuse&);
Bytes encode(const Credit&);
Bytes encode(const Ping&);
Bytes encode(const Pong&);
Bytes encode(const GoAway&);

// Decoders. Errors: corrupt, with the field that is wrong.
Result<Hello> decode_hello(const Frame&);
Result<Welcome> decode_welcome(const Frame&);
Result<ProgramFrame> decode_program_frame(const Frame&);
Result<Compute> decode_compute(const Frame&);
Result<ResultTile> decode_result(const Frame&);
Result<Refuse> decode_refuse(const Frame&);
Result<Credit> decode_credit(const Frame&);
Result<Ping> decode_ping(const Frame&);
Result<Pong> decode_pong(const Frame&);
Result<GoAway> decode_goaway(const Frame&);

/// Bytes a COMPUTE payload takes, for caps and credit. UINT64_MAX where the sum does not fit.
uint64_t compute_payload_bytes(Output output, uint64_t n_x, uint64_t n_in, uint64_t n_pairs, bool weighted);
/// Bytes a RESULT payload of one tile takes.
uint64_t result_payload_bytes(uint64_t n_out, uint64_t n_rows);

}  // namespace linkcpp::wire
