#pragma once
// One worker as the backbone sees it: a connection that is made again when it breaks, the handshake, the admission check
// with its canaries, the requests under way and their progress. All of it on the loop; time and transport come
// from the injected network. Requests are pure, so the owner may repeat any of them elsewhere at any time.

#include "dispatch/admission.h"
#include "dispatch/latency.h"
#include "dispatch/settings.h"
#include "net/loop.h"
#include "wire/session.h"

#include <deque>
#include <map>
#include <optional>
#include <random>
#include <tuple>

namespace linkcpp::dispatch {

class Peer;

/// What a request needs on the wire.
struct PeerRequest {
    uint64_t id = 0;
    uint16_t attempt = 0;
    uint32_t layer = 0;
    uint32_t offer = 0;  ///< index into Peer::offers()
    std::shared_ptr<const ProgramCode> program;
    wire::ComputeFrame frame;
};

class PeerObserver {
  public:
    virtual ~PeerObserver() = default;
    /// The peer became ready, was refused, or an attempt to reach it failed.
    virtual void peer_changed(Peer& peer) = 0;
    /// All rows are there: [n_out, n_rows_out], finite. They may be moved from.
    virtual void request_done(Peer& peer, uint64_t id, Floats& rows) = 0;
    /// The request will not be answered. The peer may be usable still (ready()).
    virtual void request_failed(Peer& peer, uint64_t id, const Status& status) = 0;
};

struct PeerStats {
    std::string address, numeric_class, state;
    uint64_t requests = 0, rows = 0, bytes_out = 0, bytes_in = 0, failures = 0;
    Duration queued{}, computed{};  ///< time that its requests spent at the worker, by its own account
};

class Peer final : private wire::SessionHandler {
  public:
    enum class State { idle, connecting, handshake, admission, ready, backing_off, refused };

    Peer(net::Network& network, const Settings& settings, PeerCheck* check, PeerObserver& observer,
         net::Address address, LatencyWindow& round_trips);
    ~Peer() override;

    void start();  ///< connects, and keeps connecting
    /// Looks at the clock: pings, stalls, lost connections. Called every few ten milliseconds while requests are under way.
    void tick();

    State state() const { return state_; }
    bool ready() const { return state_ == State::ready && !silent_ && !draining_ && !retired_; }
    /// Silent, but connected: it may go on at any moment, as a process does that had no processor for a while.
    bool may_wake() const { return state_ == State::ready && silent_; }
    /// True once the first attempt ended, well or not.
    bool settled() const { return settled_; }
    const net::Address& address() const { return address_; }
    const std::vector<wire::SliceOffer>& offers() const { return welcome_.slices; }
    const std::string& numeric_class() const { return welcome_.numeric_class; }
    /// Why the peer is not usable now; ok when it is.
    const Status& trouble() const { return trouble_; }
    /// Its slices are being checked, or its canaries run: it may become ready soon.
    bool in_admission() const { return state_ == State::admission; }
    bool runs_canaries() const { return state_ == State::admission && !canaries_.empty(); }
    Instant welcomed() const { return welcomed_; }
    /// Counts connections; answers of one connection come from one process.
    uint64_t connection() const { return connection_; }
    /// The p95 of recent requests of about this size; zero when too few are known.
    Duration usual(size_t n_pairs) const;
    Duration expected() const;  ///< expected time until an answer to a small request, queue included
    PeerStats stats() const;

    /// The largest request that the worker takes, bytes of payload.
    uint64_t max_request_bytes() const { return session_ == nullptr ? 0 : session_->peer_max_payload(); }

    void send(PeerRequest request);
    /// The answer is not wanted any more.
    void forget(uint64_t id);
    /// The same, because another worker was faster: this one is at least as slow as that.
    void lost_race(uint64_t id);
    /// Something is under way that tick() must watch: a request, or the admission's canaries.
    bool needs_watching() const {
        return link_ != nullptr && (!pending_.empty() || !waiting_.empty() || silent_ || state_ == State::admission);
    }
    /// The worker is not wanted any more: it gets nothing new, and the connection ends when nothing is under way; or it is
    /// wanted again.
    void retire();
    void come_back();
    bool retired() const { return retired_; }
    /// Closes the connection of a retired peer if that loses nothing; ended() then: only its statistics are left.
    bool end_if_idle();
    bool ended() const { return retired_ && state_ == State::idle; }
    /// The worker's numbers are wrong: it is not used again for a long time.
    void quarantine(const Status& reason);

  private:
    struct Pending {
        PeerRequest request;  // without the frame, which is sent
        uint32_t n_pairs = 0, n_rows_out = 0, n_rows_in = 0;
        Floats rows;
        uint64_t bytes = 0;     // of the request and its answer
        uint64_t sent_end = 0;  // of everything sent on this connection, what ends with this request
        Instant sent{}, progress{};
        std::function<void(Result<Floats>)> canary;  // set for canaries
    };

    void connect();
    void connected(std::unique_ptr<net::Link> link);
    void drop_link();
    void lose(const Status& reason, bool refused);
    void warn(const std::string& what);
    void fail_all(const Status& reason);
    void become_ready();
    void run_canaries(std::vector<Canary> canaries);
    void next_canary();
    void transmit(PeerRequest request, std::function<void(Result<Floats>)> canary);
    void flush_waiting();
    void send_frame(Bytes frame);
    void give_credit();
    void note_round_trip(const Pending& pending);
    void note_acknowledged(Instant now);
    void note_progress(Instant now);
    void finish(uint64_t id, Pending pending);
    uint32_t program_number(const PeerRequest& request);
    Duration stall_after() const;
    Status stuck_request(Instant now) const;

    void on_welcome(const wire::Welcome& welcome) override;
    void on_result(const wire::FrameHeader& header, const wire::ResultTile& tile) override;
    void on_refuse(const wire::FrameHeader& header, const wire::Refuse& refuse) override;
    void on_credit(const wire::Credit& credit) override;
    void on_ping(const wire::Ping& ping) override;
    void on_pong(const wire::Pong& pong) override;
    void on_goaway(const wire::GoAway& goaway) override;

    net::Network& network_;
    const Settings& settings_;
    PeerCheck* check_;
    PeerObserver& observer_;
    net::Address address_;
    LatencyWindow& round_trips_;
    std::map<int, LatencyWindow> by_size_;  // key: bits of the number of pairs

    State state_ = State::idle;
    bool settled_ = false;
    bool silent_ = false;    // nothing came for too long; requests went elsewhere
    bool draining_ = false;  // it said GOAWAY: it finishes what it has and gets nothing new
    bool retired_ = false;
    Status trouble_{Code::unavailable, "not connected yet"};
    std::string last_reason_;  // logged once, not at every attempt
    std::optional<Instant> last_warning_;
    size_t n_unsaid_ = 0;  // warnings since then
    bool liar_ = false;
    std::unique_ptr<net::Link> link_;
    std::unique_ptr<wire::Session> session_;
    wire::Welcome welcome_;
    wire::CreditWindow credit_;
    uint64_t owed_credit_ = 0;  // of results, not given back yet
    uint64_t connection_ = 0;   // counts connections, so that late callbacks know theirs is gone
    Duration backoff_;
    net::Loop::TimerId timer_ = 0;
    std::minstd_rand jitter_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

    std::map<uint64_t, Pending> pending_;
    Floats spare_rows_;
    std::deque<std::pair<PeerRequest, std::function<void(Result<Floats>)>>> waiting_;  // for credit
    std::map<std::tuple<uint32_t, uint32_t, std::string>, uint32_t> programs_;         // (offer, layer, code) -> number
    std::deque<Canary> canaries_;
    uint64_t canary_id_ = UINT64_MAX;  // counts down; the owner's ids count up
    Instant last_heard_{}, last_ping_{};
    uint64_t sent_total_ = 0, acknowledged_ = 0;  // bytes of this connection, the latter at the last look
    uint64_t request_end_ = 0;                    // of them, up to the end of the last request
    Instant hello_sent_{}, welcomed_{};
    Instant waiting_since_{};  // since when requests wait for credit while nothing is under way
    uint64_t rows_done_ = 0;   // by the last PONG
    uint32_t rows_queued_ = 0;
    PeerStats stats_;
};

}  // namespace linkcpp::dispatch
