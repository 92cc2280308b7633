#include "wire/session.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>

namespace linkcpp::wire {

Session::Session(Side side, uint32_t max_payload, VersionRange versions)
    : side_(side), state_(side == Side::worker ? State::waiting_hello : State::waiting_welcome), versions_(versions),
      max_payload_(std::clamp(max_payload, max_handshake_payload, max_payload_limit)) {}

Status Session::feed(ByteSpan bytes, SessionHandler& handler) {
    reader_.feed(bytes);
    while (true) {
        Result<std::optional<Frame>> frame = reader_.next();
        if (!frame.ok()) return frame.status();
        if (!frame->has_value()) return {};
        LINKCPP_TRY(dispatch(**frame, handler));
    }
}

bool Session::allowed(FrameType type) const {
    switch (state_) {
        case State::waiting_hello: return type == FrameType::hello;
        case State::waiting_welcome: return type == FrameType::welcome || type == FrameType::goaway;
        case State::answering: return type == FrameType::goaway;
        case State::open: break;
    }
    switch (type) {
        case FrameType::hello:
        case FrameType::welcome: return false;
        case FrameType::program:
        case FrameType::compute: return side_ == Side::worker;
        case FrameType::result:
        case FrameType::refuse: return side_ == Side::backbone;
        case FrameType::credit:
        case FrameType::ping:
        case FrameType::pong:
        case FrameType::goaway: return true;
    }
    return false;
}

Status Session::dispatch(const Frame& frame, SessionHandler& handler) {
    const FrameType type = frame.header.type;
    payload_bytes_ = frame.payload.size();
    ++n_frames_;
    if (!allowed(type)) {
        return {Code::corrupt, fmt::format("a {} frame that is not allowed {}", frame_type_name(type),
                                           state_ == State::open ? "from this side" : "before the handshake is over")};
    }
    switch (type) {
        case FrameType::hello: return receive_hello(frame, handler);
        case FrameType::welcome: return receive_welcome(frame, handler);
        case FrameType::program:
        case FrameType::compute: return dispatch_request(frame, handler);
        case FrameType::result:
        case FrameType::refuse: return dispatch_answer(frame, handler);
        default: return dispatch_either(frame, handler);
    }
}

Status Session::receive_hello(const Frame& frame, SessionHandler& handler) {
    Result<Hello> hello = decode_hello(frame);
    if (!hello.ok()) return hello.status();
    if (hello->version_max < versions_.min || hello->version_min > versions_.max) {
        return {Code::mismatch,
                fmt::format("no common protocol version: this worker speaks {} to {}, the other end {} to {} ({})",
                            versions_.min, versions_.max, hello->version_min, hello->version_max, hello->build)};
    }
    state_ = State::answering;
    handler.on_hello(*hello);
    return {};
}

Status Session::receive_welcome(const Frame& frame, SessionHandler& handler) {
    Result<Welcome> welcome = decode_welcome(frame);
    if (!welcome.ok()) return welcome.status();
    if (welcome->version < versions_.min || welcome->version > versions_.max) {
        return {Code::mismatch, fmt::format("the worker ({}) wants protocol version {}, this end speaks {} to {}",
                                            welcome->build, welcome->version, versions_.min, versions_.max)};
    }
    open(welcome->version, welcome->max_payload);
    handler.on_welcome(*welcome);
    return {};
}

/// What a backbone asks for. Its content may be wrong without harm to the connection.
Status Session::dispatch_request(const Frame& frame, SessionHandler& handler) {
    if (frame.header.type == FrameType::program) {
        Result<ProgramFrame> program = decode_program_frame(frame);
        if (program.ok()) {
            handler.on_program(frame.header, std::move(*program));
        } else {
            handler.on_malformed_request(frame.header, program.status());
        }
        return {};
    }
    Result<Compute> compute = decode_compute(frame);
    if (compute.ok()) {
        handler.on_compute(frame.header, std::move(*compute));
    } else {
        handler.on_malformed_request(frame.header, compute.status());
    }
    return {};
}

Status Session::dispatch_answer(const Frame& frame, SessionHandler& handler) {
    if (frame.header.type == FrameType::result) {
        Result<ResultTile> tile = decode_result(frame);
        if (!tile.ok()) return tile.status();
        handler.on_result(frame.header, *tile);
        return {};
    }
    Result<Refuse> refuse = decode_refuse(frame);
    if (!refuse.ok()) return refuse.status();
    handler.on_refuse(frame.header, *refuse);
    return {};
}

Status Session::dispatch_either(const Frame& frame, SessionHandler& handler) {
    switch (frame.header.type) {
        case FrameType::credit: {
            Result<Credit> credit = decode_credit(frame);
            if (!credit.ok()) return credit.status();
            handler.on_credit(*credit);
            return {};
        }
        case FrameType::ping: {
            Result<Ping> ping = decode_ping(frame);
            if (!ping.ok()) return ping.status();
            handler.on_ping(*ping);
            return {};
        }
        case FrameType::pong: {
            Result<Pong> pong = decode_pong(frame);
            if (!pong.ok()) return pong.status();
            handler.on_pong(*pong);
            return {};
        }
        default: {
            Result<GoAway> goaway = decode_goaway(frame);
            if (!goaway.ok()) return goaway.status();
            handler.on_goaway(*goaway);
            return {};
        }
    }
}

void Session::open(uint16_t version, uint32_t peer_max_payload) {
    state_ = State::open;
    version_ = version;
    peer_max_payload_ = peer_max_payload;
    reader_.set_max_payload(max_payload_);
    reader_.set_version(version);
}

Bytes Session::hello_for(Hello hello) const {
    assert(side_ == Side::backbone);
    hello.version_min = versions_.min;
    hello.version_max = versions_.max;
    hello.max_payload = max_payload_;
    return encode(hello);
}

Bytes Session::welcome_for(const Hello& hello, Welcome welcome) {
    assert(state_ == State::answering);
    welcome.version = std::min(hello.version_max, versions_.max);
    welcome.max_payload = max_payload_;
    open(welcome.version, hello.max_payload);
    return encode(welcome);
}

Bytes Session::goaway_for(const Status& error) {
    GoAway goaway;
    goaway.message = error.message();
    switch (error.code()) {
        case Code::mismatch: goaway.reason = RefuseCode::version; break;
        case Code::corrupt:
        case Code::exhausted:
        case Code::invalid_argument: goaway.reason = RefuseCode::malformed; break;
        case Code::unavailable: goaway.reason = RefuseCode::draining; break;
        case Code::timeout: goaway.reason = RefuseCode::no_time_left; break;
        case Code::unsupported: goaway.reason = RefuseCode::unsupported; break;
        default: goaway.reason = RefuseCode::failed; break;
    }
    return encode(goaway);
}

bool CreditWindow::spend(uint64_t bytes) {
    if (bytes > left_) {
        if (under_way_ != 0) return false;
        debt_ += bytes - left_;
        left_ = 0;
    } else {
        left_ -= bytes;
    }
    under_way_ += bytes;
    return true;
}

void CreditWindow::grant(uint64_t bytes) {
    under_way_ -= std::min(under_way_, bytes);
    const uint64_t paid = std::min(debt_, bytes);
    debt_ -= paid;
    bytes -= paid;
    left_ = bytes > UINT64_MAX - left_ ? UINT64_MAX : left_ + bytes;
}

}  // namespace linkcpp::wire
