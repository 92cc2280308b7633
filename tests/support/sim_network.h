#pragma once
// A network in virtual time, for tests of everything that decides by time: the interfaces of net/loop.h, one thread, no
// sockets, the same run every time. Nothing happens until the test runs the loop; time jumps from event to event.
//
//     SimNetwork network;
//     auto listener = network.listen({"worker", 1}, …);
//     network.path({"worker", 1}).latency = 50ms;           // faults are set per listening address
//     network.connect({"worker", 1}, 1s, …);
//     ASSERT_TRUE(network.sim().run_until([&] { return answered; }, 10s));
//
// What is modelled: bytes arrive in order, in pieces of at most 64 KB, after latency and after the time that the bandwidth
// needs; the "operating system" buffers 256 KB per direction, what is beyond counts as unsent(); a receiver that does not
// read fills that buffer. What is not: packet loss (TCP hides it, as delay), shared bandwidth between connections.
// post() may be called from any thread; everything else only from the thread that runs the loop. Links that outlive the
// network are dead, and harmless.

#include "net/loop.h"

#include <map>
#include <mutex>
#include <vector>

namespace linkcpp::test {

/// Deterministic loop: events run in order of time, and of their making where times are equal.
class SimLoop final : public net::Loop {
  public:
    Instant now() const override { return now_; }
    void post(Task task) override;
    void run(const Task& task) override { task(); }
    bool run_until(const std::function<bool()>& done) override { return run_until(done, std::chrono::hours(1)); }
    void run_after(Task task) override { post(std::move(task)); }
    TimerId after(Duration delay, Task task) override;
    void cancel(TimerId timer) override;

    /// Runs events until `done()` is true, no later than `limit` from now. False: the limit came first, or nothing was
    /// left to happen (then time stands at the last event).
    bool run_until(const std::function<bool()>& done, Duration limit);
    /// Runs everything that happens within `duration`; afterwards now() is exactly that much later.
    void run_for(Duration duration);
    /// Events that are still to come, timers included.
    size_t pending() const { return events_.size(); }

  private:
    void take_posted();
    bool run_next(Instant limit);

    Instant now_{0};
    TimerId last_ = 0;
    std::map<std::pair<Instant, TimerId>, Task> events_;
    std::map<TimerId, Instant> when_;
    std::mutex mutex_;
    std::vector<Task> posted_;  // protected by mutex_
};

/// The way to one listening address. Changes concern what is sent from then on, and connections that exist.
struct Path {
    Duration latency{0};             ///< one way
    double bytes_per_second = 0;     ///< each way; 0 = no limit
    bool refuse = false;             ///< new connections are refused (nothing listens there does the same)
    bool stall_to_listener = false;  ///< bytes to the listening side wait; they are sent when this ends
    bool stall_from_listener = false;
    bool partition = false;  ///< stalls both ways, also the news that a side closed; new connections time out
};

class SimLink;

class SimNetwork final : public net::Network {
  public:
    SimNetwork();
    ~SimNetwork() override;

    net::Loop& loop() override { return *loop_; }
    SimLoop& sim() { return *loop_; }
    void connect(const net::Address& address, Duration timeout,
                 std::function<void(Result<std::unique_ptr<net::Link>>)> done) override;
    /// Port 0: a free port, from 50000 up.
    Result<std::unique_ptr<net::Listener>> listen(const net::Address& address,
                                                  std::function<void(std::unique_ptr<net::Link>)> on_accept) override;

    /// The path to an address, to be changed at any time; call release() after a stall or partition was ended.
    Path& path(const net::Address& address) { return paths_[address]; }
    /// Sends on what waited for the end of a stall or partition.
    void release(const net::Address& address);
    /// Breaks all connections to an address now: both ends see `io`; bytes that have not arrived are lost.
    void cut(const net::Address& address);
    /// Breaks the connections to an address once `n_bytes` more bytes have been sent to its listening side (to_listener),
    /// or by it: the bytes before the cut arrive.
    void cut_after(const net::Address& address, bool to_listener, uint64_t n_bytes);
    /// Inverts bit `bit` of the byte that is sent `n_bytes` after now, in one direction of each connection to the address.
    void flip_bit_after(const net::Address& address, bool to_listener, uint64_t n_bytes, int bit = 0);
    /// Connections to the address that are open on both sides.
    size_t connections(const net::Address& address) const;
    /// Bytes that wait on the connecting sides of all connections to the address.
    size_t unsent_to(const net::Address& address) const;
    /// Bytes that arrived at the listening side of the address so far, or at the other.
    uint64_t bytes_delivered(const net::Address& address, bool to_listener) const;

  private:
    friend class SimLink;
    friend struct SimConnection;
    struct ListenerState;
    class SimListener;

    std::shared_ptr<SimLoop> loop_;
    std::map<net::Address, Path> paths_;
    std::map<net::Address, std::shared_ptr<ListenerState>> listeners_;
    std::map<net::Address, std::vector<std::weak_ptr<struct SimConnection>>> connections_;
    std::map<std::pair<net::Address, bool>, uint64_t> delivered_;
    uint16_t next_port_ = 50000;
};

}  // namespace linkcpp::test
