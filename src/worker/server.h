#pragma once
// Serves experts over the dispatch protocol (docs/PROTOCOL.md): accepts connections, checks every request against the slices,
// has them computed one after the other, taking turns between connections, and streams the results. Every queue is
// bounded; what does not fit is refused at once. A worker is a pure function: nothing outlives a connection.
//
// Runs on one loop and knows neither sockets nor threads: network and computer are given, so that tests drive it in
// virtual time. Make, use and destroy it on the loop.

#include "base/log.h"
#include "net/loop.h"
#include "worker/client.h"
#include "worker/computer.h"
#include "worker/log_limit.h"
#include "worker/request_check.h"

#include <map>

namespace linkcpp::worker {

struct ServerSettings {
    std::string build;  ///< for people
    std::string numeric_class;
    size_t max_connections = 64;
    size_t max_requests = 4096;  ///< waiting or being computed, over all connections
    /// Their payload bytes, in multiples of the largest payload; one connection may have half of them.
    uint64_t max_queued_payloads = 4;
    uint64_t max_result_bytes = 32u << 20;  ///< results that one connection has not taken, before its requests wait
    /// Everything that is held for peers, over all connections: frames that are being received, programs, requests, results
    /// on their way. One connection may have half. A request that is alone is accepted whatever its size.
    uint64_t max_peer_bytes = 256u << 20;
    Duration handshake_limit = std::chrono::seconds(5);
    Duration ping_after = std::chrono::seconds(20);     ///< of silence
    Duration silence_limit = std::chrono::seconds(60);  ///< then the peer is gone
    Duration stuck_limit = std::chrono::seconds(60);    ///< a peer that takes nothing of what waits for it
    Duration frame_limit = std::chrono::seconds(30);    ///< for a frame that has begun, plus its size at 128 KiB/s
    /// For a frame and for a result, plus their size at 1 MiB/s, while others are refused for want of memory.
    Duration pressure_limit = std::chrono::seconds(5);
    Duration hello_grace = std::chrono::seconds(1);          ///< without HELLO, before a newcomer may take its place
    Duration goodbye_time = std::chrono::milliseconds(250);  ///< for requests that crossed our GOAWAY: they are refused
};

class Server {
  public:
    /// All arguments outlive the server. `slices`: at most wire::max_slices_offered.
    Server(net::Network& network, Computer& computer, const std::vector<ServedSlice>& slices, ServerSettings settings);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    Status listen(const net::Address& address);
    /// With the real port, after listen().
    net::Address address() const { return listener_->address(); }

    /// Accepts nothing new, says GOAWAY, finishes what is in flight, closes; then calls `done`, once.
    void drain(std::function<void()> done);

    size_t n_connections() const { return clients_.size(); }
    /// Memory held for peers, see ServerSettings::max_peer_bytes.
    uint64_t held_bytes() const;
    uint32_t pairs_waiting() const { return static_cast<uint32_t>(std::min<uint64_t>(pairs_waiting_, UINT32_MAX)); }

  private:
    friend class Client;

    void accept(std::unique_ptr<net::Link> link);
    /// When all places are taken: ends a connection that has said nothing yet, to make place. False: there is none.
    bool make_place();
    /// A line about a peer, of which a flood of peers gets only some.
    void tell(LogLevel level, const std::string& line);
    void limit_handshake(uint64_t id);
    /// Destroys a connection, with everything that waits in it.
    void forget(uint64_t id);
    /// Ends a connection after telling the other end why. Destroys it.
    void end(uint64_t id, const Status& error);
    /// Room for one more request of `client`?
    bool has_room(const RequestCost& cost, const Client& client);
    /// Has all connections give back what they keep only to be quick, but the one whose frame is being looked at.
    void trim(const Client* receiving);
    /// Stops to read what there is no memory for, and goes on when there is.
    void balance();
    /// While others are refused for want of memory: ends connections that keep some for too long.
    void relieve();
    void queued(const RequestCost& cost);
    void left(const RequestCost& cost);
    /// Starts what can start.
    void schedule();
    bool start_next();
    void finished(uint64_t id, const wire::FrameHeader& header, const RequestCost& cost, Instant arrived,
                  ComputeOutcome outcome);
    void tick();
    /// Looks, on the loop's next turn, whether draining is over.
    void check_drained();
    /// Runs `task` later, unless the server is gone by then.
    net::Loop::TimerId later(Duration delay, std::function<void()> task);

    net::Network& network_;
    Computer& computer_;
    const std::vector<ServedSlice>& slices_;
    const ServerSettings settings_;
    const Caps caps_;
    std::unique_ptr<net::Listener> listener_;
    std::map<uint64_t, std::unique_ptr<Client>> clients_;
    uint64_t last_id_ = 0;
    uint64_t last_served_ = 0;  // id of the connection whose turn was last
    size_t n_computing_ = 0;
    size_t n_requests_ = 0;  // waiting or being computed, as are the next two
    uint64_t payload_bytes_ = 0, pairs_waiting_ = 0;
    uint64_t computing_bytes_ = 0;      // of requests being computed, their results included
    Instant short_of_memory_until_{0};  // somebody was refused, or is not read, a little before
    LogLimit log_limit_;
    bool draining_ = false, goodbyes_over_ = false;
    std::function<void()> drained_;
    /// Callbacks that outlive the server see that it is gone.
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace linkcpp::worker
