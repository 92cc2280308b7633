#pragma once
// One connection of the server: its session, its queue of requests, its results on their way out. Inside of the room; the
// Server owns it. Everything runs on the loop. Functions that may end the connection say so: after them the
// object may be gone.

#include "net/loop.h"
#include "wire/session.h"
#include "worker/computer.h"
#include "worker/request_check.h"

#include <deque>

namespace linkcpp::worker {

class Server;

/// What a request takes from the bounds as long as it is here.
struct RequestCost {
    uint64_t payload_bytes = 0;  ///< of the COMPUTE
    uint64_t result_bytes = 0;   ///< of all output rows
    uint64_t scratch_bytes = 0;  ///< besides these, while it is computed
    uint64_t n_pairs = 0;
    uint64_t all_bytes() const { return payload_bytes + result_bytes + scratch_bytes; }
};

/// A request that was accepted and waits for its turn.
struct QueuedRequest {
    wire::FrameHeader header;
    ComputeJob job;
    RequestCost cost;
    Instant arrived{0};
};

class Client final : public wire::SessionHandler {
  public:
    Client(Server& server, uint64_t id, std::unique_ptr<net::Link> link);
    ~Client() override;

    /// Is a request waiting whose turn could come? Not while results that the other end does not take pile up.
    bool ready() const;
    QueuedRequest take();
    /// The end of a request that take() gave out: sends its result, or the refusal, and gives its credit back.
    void finish(const wire::FrameHeader& header, const RequestCost& cost, ComputeOutcome outcome, Duration waited);
    void refuse(const wire::FrameHeader& header, wire::RefuseCode code, const std::string& message);
    void say_goodbye(const std::string& message);
    /// Nothing waiting, being computed, or on its way out.
    bool idle() const;
    /// Sends what is queued, then closes the link.
    void close() { link_->close(true); }
    /// The same after `last_frame`; what a peer does not take is not kept for it.
    void close_with(Bytes last_frame);
    /// To be called now and then: looks after silent and stuck peers. A sentence why the connection must end, or "".
    std::string check(Instant now);

    /// Memory that is held for this peer, except for what is being computed.
    uint64_t held_bytes() const;
    /// Payload bytes of its requests, waiting or being computed.
    uint64_t payload_bytes() const { return payload_bytes_; }
    /// Anything of a request here, from COMPUTE until the link has sent the last tile?
    bool has_requests() const { return !queue_.empty() || n_computing_ != 0 || result_memory() != 0; }
    /// Gives back what is kept only to be quick.
    void trim() { session_.trim(); }
    /// When the frame began that is being received.
    std::optional<Instant> frame_begun() const { return frame_begun_; }
    /// Stops or resumes reading, for want of memory.
    void hold_up(bool yes);
    /// Has a frame, or a result, been here for longer than it may when memory is short?
    bool keeps_memory_too_long(Instant now) const;
    Instant connected() const { return connected_; }
    bool established() const { return session_.established(); }
    std::string peer() const { return link_->peer(); }
    const std::deque<QueuedRequest>& waiting() const { return queue_; }

  private:
    struct Outgoing {
        wire::FrameHeader header;
        std::shared_ptr<const Floats> rows;
        uint32_t n_out = 0, next_row = 0, n_rows = 0;
        uint32_t queue_us = 0, compute_us = 0;
        Instant finished{0};
    };

    void on_bytes(ByteSpan bytes);  // may end the connection, and this object with it
    void on_drained();
    void note_frame(uint64_t n_frames_before);
    void pause_reading(bool& reason, bool yes);
    void send(Bytes frame);
    void give_back(uint64_t payload_bytes);
    void send_results();
    bool send_tile(Outgoing& result);
    uint64_t result_memory() const;

    void on_hello(const wire::Hello& hello) override;
    void on_program(const wire::FrameHeader& header, wire::ProgramFrame&& program) override;
    void on_compute(const wire::FrameHeader& header, wire::Compute&& compute) override;
    void on_credit(const wire::Credit& credit) override;
    void on_ping(const wire::Ping& ping) override;
    void on_malformed_request(const wire::FrameHeader& header, const Status& status) override;

    Server& server_;
    const uint64_t id_;
    std::unique_ptr<net::Link> link_;
    wire::Session session_;
    RequestCheck check_;
    std::deque<QueuedRequest> queue_;
    size_t n_computing_ = 0;
    uint64_t payload_bytes_ = 0;  // of requests waiting or being computed
    uint64_t result_bytes_ = 0;   // of results being computed or on their way out
    std::deque<Outgoing> outgoing_;
    std::vector<std::weak_ptr<const Floats>> leaving_;  // all of their tiles are at the link, which sends from them
    wire::CreditWindow result_credit_;
    uint64_t tile_bytes_ = 0;            // of tiles that the link has not taken yet
    uint64_t enqueued_ = 0;              // bytes given to the link so far
    uint64_t taken_ = 0;                 // of them, what it had taken at the last check
    Instant heard_;                      // when bytes came last
    Instant bytes_moved_, tiles_moved_;  // when the link took bytes last, and a tile; now, while there are none
    const Instant connected_;
    std::optional<Instant> frame_begun_;
    Instant paused_at_;
    bool paused_ = false;   // not read: it does not take its answers
    bool held_up_ = false;  // not read: there is no memory
    bool pinged_ = false;
};

}  // namespace linkcpp::worker
