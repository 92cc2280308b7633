// The handshake and the small frames; COMPUTE and RESULT are in messages_compute.cpp.
#include "wire/messages.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::wire {

namespace {

/// A writer with room for the header in front.
ByteWriter start_frame(size_t payload_bytes) {
    ByteWriter out;
    out.bytes().reserve(header_bytes + payload_bytes);
    out.zeros(header_bytes);
    return out;
}

Bytes seal(FrameHeader header, FrameType type, ByteWriter& out) {
    header.type = type;
    seal_frame(header, out.bytes());
    return out.take();
}

std::string whole_or_nothing(const std::string& text, size_t limit) { return text.size() <= limit ? text : ""; }

Status wrong(FrameType type, const std::string& what) {
    return {Code::corrupt, fmt::format("{}: {}", frame_type_name(type), what)};
}

/// What HELLO and WELCOME have in common.
Status check_ends(FrameType type, uint32_t max_payload, const std::string& build, const std::string& numeric_class,
                  const std::string& identity) {
    if (max_payload < max_handshake_payload || max_payload > max_payload_limit) {
        return wrong(type, fmt::format("a payload cap of {} bytes", max_payload));
    }
    if (build.size() > max_build_bytes) return wrong(type, "the build is too long");
    if (numeric_class.size() > max_numeric_class_bytes) return wrong(type, "the numeric class is too long");
    if (identity.size() > max_identity_bytes) return wrong(type, "the identity is too long");
    return {};
}

Status check_offer(const SliceOffer& offer) {
    const bool layers = offer.layer_begin < offer.layer_end && offer.layer_end <= max_layers;
    const bool experts = offer.expert_begin < offer.expert_end && offer.expert_end <= max_experts;
    return layers && experts ? Status() : wrong(FrameType::welcome, "a slice with impossible layers or experts");
}

bool known(RefuseCode code) { return code >= RefuseCode::busy && code <= RefuseCode::failed; }

}  // namespace

Bytes encode(const Hello& hello) {
    ByteWriter out = start_frame(128);
    out.u16(hello.version_min);
    out.u16(hello.version_max);
    out.u32(hello.max_payload);
    out.u64(hello.credit);
    out.string16(hello.build.substr(0, max_build_bytes));
    out.string16(whole_or_nothing(hello.numeric_class, max_numeric_class_bytes));
    out.string16(whole_or_nothing(hello.identity, max_identity_bytes));
    return seal({}, FrameType::hello, out);
}

Result<Hello> decode_hello(const Frame& frame) {
    ByteReader in(frame.payload);
    Hello hello;
    hello.version_min = in.u16();
    hello.version_max = in.u16();
    hello.max_payload = in.u32();
    hello.credit = in.u64();
    hello.build = in.string16();
    hello.numeric_class = in.string16();
    hello.identity = in.string16();
    if (!in.done()) return wrong(FrameType::hello, "the length is wrong");
    if (hello.version_min == 0 || hello.version_min > hello.version_max) {
        return wrong(FrameType::hello, fmt::format("versions {} to {}", hello.version_min, hello.version_max));
    }
    LINKCPP_TRY(check_ends(FrameType::hello, hello.max_payload, hello.build, hello.numeric_class, hello.identity));
    return hello;
}

Bytes encode(const Welcome& welcome) {
    ByteWriter out = start_frame(max_handshake_payload);
    out.u16(welcome.version);
    out.u32(welcome.max_payload);
    out.u64(welcome.credit);
    out.string16(welcome.build.substr(0, max_build_bytes));
    out.string16(whole_or_nothing(welcome.numeric_class, max_numeric_class_bytes));
    out.string16(whole_or_nothing(welcome.identity, max_identity_bytes));
    const size_t n_slices = std::min(welcome.slices.size(), max_slices_offered);
    out.u16(static_cast<uint16_t>(n_slices));
    for (size_t i = 0; i < n_slices; ++i) {
        const SliceOffer& offer = welcome.slices[i];
        out.raw(offer.slice);
        out.u32(offer.layer_begin);
        out.u32(offer.layer_end);
        out.u32(offer.expert_begin);
        out.u32(offer.expert_end);
    }
    return seal({}, FrameType::welcome, out);
}

Result<Welcome> decode_welcome(const Frame& frame) {
    constexpr size_t offer_bytes = 32;
    ByteReader in(frame.payload);
    Welcome welcome;
    welcome.version = in.u16();
    welcome.max_payload = in.u32();
    welcome.credit = in.u64();
    welcome.build = in.string16();
    welcome.numeric_class = in.string16();
    welcome.identity = in.string16();
    const size_t n_slices = in.u16();
    if (n_slices > max_slices_offered) return wrong(FrameType::welcome, fmt::format("{} slices", n_slices));
    if (!in.ok() || in.left() != n_slices * offer_bytes) return wrong(FrameType::welcome, "the length is wrong");
    if (welcome.version == 0) return wrong(FrameType::welcome, "version 0");
    LINKCPP_TRY(
        check_ends(FrameType::welcome, welcome.max_payload, welcome.build, welcome.numeric_class, welcome.identity));
    for (size_t i = 0; i < n_slices; ++i) {
        SliceOffer offer;
        ByteSpan id = in.take(offer.slice.size());
        std::copy(id.begin(), id.end(), offer.slice.begin());
        offer.layer_begin = in.u32();
        offer.layer_end = in.u32();
        offer.expert_begin = in.u32();
        offer.expert_end = in.u32();
        LINKCPP_TRY(check_offer(offer));
        welcome.slices.push_back(offer);
    }
    return welcome;
}

Bytes encode(FrameHeader header, const ProgramFrame& program) {
    ByteWriter out = start_frame(16 + program.code.size());
    out.u32(program.program);
    out.u32(program.layer_begin);
    out.u32(program.layer_end);
    out.u32(static_cast<uint32_t>(program.code.size()));
    out.raw(program.code);
    return seal(header, FrameType::program, out);
}

Result<ProgramFrame> decode_program_frame(const Frame& frame) {
    ByteReader in(frame.payload);
    ProgramFrame program;
    program.program = in.u32();
    program.layer_begin = in.u32();
    program.layer_end = in.u32();
    const uint32_t n_code = in.u32();
    if (!in.ok() || in.left() != n_code) return wrong(FrameType::program, "the length is wrong");
    if (n_code == 0 || n_code > max_program_code) {
        return wrong(FrameType::program, fmt::format("a program of {} bytes", n_code));
    }
    if (program.layer_begin >= program.layer_end || program.layer_end > max_layers) {
        return wrong(FrameType::program, fmt::format("layers {} to {}", program.layer_begin, program.layer_end));
    }
    ByteSpan code = in.take(n_code);
    program.code.assign(code.begin(), code.end());
    return program;
}

const char* refuse_code_name(RefuseCode code) {
    switch (code) {
        case RefuseCode::busy: return "busy";
        case RefuseCode::draining: return "draining";
        case RefuseCode::unknown_slice: return "unknown slice";
        case RefuseCode::unknown_program: return "unknown program";
        case RefuseCode::no_time_left: return "no time left";
        case RefuseCode::malformed: return "malformed";
        case RefuseCode::version: return "version";
        case RefuseCode::unsupported: return "unsupported";
        case RefuseCode::not_allowed: return "not allowed";
        case RefuseCode::failed: return "failed";
    }
    return "unknown";
}

Bytes encode(FrameHeader header, const Refuse& refuse) {
    ByteWriter out = start_frame(4 + refuse.message.size());
    out.u16(static_cast<uint16_t>(refuse.code));
    out.string16(refuse.message.substr(0, max_message_bytes));
    header.flags = 0;
    return seal(header, FrameType::refuse, out);
}

Result<Refuse> decode_refuse(const Frame& frame) {
    ByteReader in(frame.payload);
    Refuse refuse;
    refuse.code = static_cast<RefuseCode>(in.u16());
    refuse.message = in.string16();
    if (!in.done() || refuse.message.size() > max_message_bytes) return wrong(FrameType::refuse, "the length is wrong");
    if (!known(refuse.code)) {
        return wrong(FrameType::refuse, fmt::format("unknown code {}", static_cast<int>(refuse.code)));
    }
    return refuse;
}

Bytes encode(const Credit& credit) {
    ByteWriter out = start_frame(8);
    out.u64(credit.bytes);
    return seal({}, FrameType::credit, out);
}

Result<Credit> decode_credit(const Frame& frame) {
    ByteReader in(frame.payload);
    Credit credit{in.u64()};
    if (!in.done()) return wrong(FrameType::credit, "the length is wrong");
    return credit;
}

Bytes encode(const Ping& ping) {
    ByteWriter out = start_frame(8);
    out.u64(ping.nonce);
    return seal({}, FrameType::ping, out);
}

Result<Ping> decode_ping(const Frame& frame) {
    ByteReader in(frame.payload);
    Ping ping{in.u64()};
    if (!in.done()) return wrong(FrameType::ping, "the length is wrong");
    return ping;
}

Bytes encode(const Pong& pong) {
    ByteWriter out = start_frame(24);
    out.u64(pong.nonce);
    out.u64(pong.rows_done);
    out.u32(pong.rows_queued);
    out.u8(pong.battery_percent);
    out.put(pong.temperature_c);
    out.u16(0);
    return seal({}, FrameType::pong, out);
}

Result<Pong> decode_pong(const Frame& frame) {
    ByteReader in(frame.payload);
    Pong pong;
    pong.nonce = in.u64();
    pong.rows_done = in.u64();
    pong.rows_queued = in.u32();
    pong.battery_percent = in.u8();
    pong.temperature_c = in.get<int8_t>();
    const uint16_t reserved = in.u16();
    if (!in.done()) return wrong(FrameType::pong, "the length is wrong");
    if (reserved != 0) return wrong(FrameType::pong, "reserved bits are set");
    if (pong.battery_percent > 100 && pong.battery_percent != 255) {
        return wrong(FrameType::pong, fmt::format("a battery at {} %", pong.battery_percent));
    }
    return pong;
}

Bytes encode(const GoAway& goaway) {
    ByteWriter out = start_frame(4 + goaway.message.size());
    out.u16(static_cast<uint16_t>(goaway.reason));
    out.string16(goaway.message.substr(0, max_message_bytes));
    return seal({}, FrameType::goaway, out);
}

Result<GoAway> decode_goaway(const Frame& frame) {
    ByteReader in(frame.payload);
    GoAway goaway;
    goaway.reason = static_cast<RefuseCode>(in.u16());
    goaway.message = in.string16();
    if (!in.done() || goaway.message.size() > max_message_bytes) return wrong(FrameType::goaway, "the length is wrong");
    if (!known(goaway.reason)) goaway.reason = RefuseCode::failed;
    return goaway;
}

}  // namespace linkcpp::wire
