#pragma once
// One end of a connection as a state machine without I/O: which frame is allowed when, version negotiation, caps and
// credit. Bytes go in through feed(), events come out through a handler, frames to send are returned or queued by the
// owner. The connecting side (backbone) speaks first with HELLO; the accepting side (worker) answers WELCOME, or GOAWAY
// when the versions do not meet. Belongs to one thread.

#include "wire/messages.h"

namespace linkcpp::wire {

enum class Side { backbone, worker };

/// The protocol versions that an end can speak, both included.
struct VersionRange {
    uint16_t min = protocol_version_min, max = protocol_version;
};

/// What a session reports. Payload spans are valid during the call only. Default: ignore.
class SessionHandler {
  public:
    virtual ~SessionHandler() = default;
    virtual void on_hello(const Hello&) {}      ///< worker side; answer with welcome_for()
    virtual void on_welcome(const Welcome&) {}  ///< backbone side: the handshake is over
    virtual void on_program(const FrameHeader&, ProgramFrame&&) {}
    virtual void on_compute(const FrameHeader&, Compute&&) {}
    virtual void on_result(const FrameHeader&, const ResultTile&) {}
    virtual void on_refuse(const FrameHeader&, const Refuse&) {}
    virtual void on_credit(const Credit&) {}
    virtual void on_ping(const Ping&) {}
    virtual void on_pong(const Pong&) {}
    virtual void on_goaway(const GoAway&) {}
    /// A COMPUTE or PROGRAM whose frame is sound but whose content is not: answer with REFUSE malformed, keep going.
    virtual void on_malformed_request(const FrameHeader&, const Status&) {}
};

class Session {
  public:
    /// `max_payload`: largest payload this end accepts once the handshake is over.
    Session(Side side, uint32_t max_payload, VersionRange versions = {});

    /// Processes received bytes. An error is final (corrupt: bytes or a frame that is not allowed now; exhausted: over a
    /// cap; mismatch: two versions that do not meet): close the connection, after sending goaway_for(error) if there is
    /// room. The handler must not destroy the session or feed it; what must end it waits until feed() returns.
    Status feed(ByteSpan bytes, SessionHandler& handler);

    /// Where the next bytes may be received, so that feed() need not copy them; empty: nowhere.
    std::span<uint8_t> room() { return reader_.room(); }

    /// Payload bytes of the frame that the handler is being told about: what credit is counted in.
    uint64_t payload_bytes() const { return payload_bytes_; }

    /// What has been received and not yet reported, for bounds in memory and time.
    const FrameReader& reader() const { return reader_; }
    /// Frames received so far: a change shows that a frame was completed.
    uint64_t n_frames() const { return n_frames_; }
    /// Between frames: gives back the room that frames are received into.
    void trim() { reader_.trim(); }

    bool established() const { return state_ == State::open; }
    /// Largest payload the other end accepts; 0 before the handshake is over.
    uint32_t peer_max_payload() const { return peer_max_payload_; }
    /// The version that both ends speak; 0 before the handshake is over.
    uint16_t version() const { return version_; }

    /// Backbone side: the HELLO frame, with this end's versions and cap filled in.
    Bytes hello_for(Hello hello) const;
    /// Worker side: the WELCOME frame for a HELLO that on_hello() reported, with the version and this end's cap filled
    /// in. Opens the session.
    Bytes welcome_for(const Hello& hello, Welcome welcome);

    /// The GOAWAY that tells the other end why feed() failed.
    static Bytes goaway_for(const Status& error);

  private:
    enum class State { waiting_hello, waiting_welcome, answering, open };
    Status dispatch(const Frame& frame, SessionHandler& handler);
    Status dispatch_request(const Frame& frame, SessionHandler& handler);
    Status dispatch_answer(const Frame& frame, SessionHandler& handler);
    Status dispatch_either(const Frame& frame, SessionHandler& handler);
    Status receive_hello(const Frame& frame, SessionHandler& handler);
    Status receive_welcome(const Frame& frame, SessionHandler& handler);
    bool allowed(FrameType type) const;
    void open(uint16_t version, uint32_t peer_max_payload);

    Side side_;
    State state_;
    VersionRange versions_;
    FrameReader reader_;
    uint32_t max_payload_;
    uint32_t peer_max_payload_ = 0;
    uint16_t version_ = 0;
    uint64_t payload_bytes_ = 0;
    uint64_t n_frames_ = 0;
};

/// Byte credit of one direction of a connection (back pressure). The receiver grants, the sender spends before it sends.
class CreditWindow {
  public:
    explicit CreditWindow(uint64_t initial = 0) : left_(initial) {}
    /// False: not enough left; nothing was spent. A frame larger than the whole window may be sent when nothing is
    /// under way (`under_way` bytes = 0), so that it cannot wait for ever.
    bool spend(uint64_t bytes);
    void grant(uint64_t bytes);
    uint64_t left() const { return left_; }
    uint64_t under_way() const { return under_way_; }

  private:
    uint64_t left_;
    uint64_t under_way_ = 0;
    uint64_t debt_ = 0;  ///< what a frame larger than the window took beyond it; grants pay it back first
};

}  // namespace linkcpp::wire
