#pragma once
// The seam between the rooms that decide and the machinery that moves bytes. A Loop runs callbacks one at a time, "on the
// loop": no two of them overlap, whichever threads run them. Everything that has a callback belongs to its loop and is
// used on it only, except what says "any thread". Implementations: TcpNetwork (net/tcp.h, Boost.Asio) and the simulated
// network of the tests, where time is virtual.

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

#include <functional>
#include <memory>
#include <string>

namespace linkcpp::net {

class Loop : public Clock {
  public:
    using Task = std::function<void()>;
    using TimerId = uint64_t;

    /// Runs `task` on the loop, later. Any thread.
    virtual void post(Task task) = 0;
    /// Runs `task` on the loop, now, on this thread. Any thread that is not on the loop.
    virtual void run(const Task& task) = 0;
    /// Runs callbacks on this thread until `done()`, which is asked between them and only looks at something: it must not
    /// use the loop. False: the loop was stopped first. Any thread that is not on the loop.
    virtual bool run_until(const std::function<bool()>& done) = 0;
    /// Runs `task` on this thread when the callback that is running is over, and not on the loop: it may take long. On the
    /// loop; where other threads run the loop meanwhile (TcpNetwork's n_threads).
    virtual void run_after(Task task) = 0;
    /// Runs `task` once, after `delay`, on the loop. Ids are never 0 and never reused.
    virtual TimerId after(Duration delay, Task task) = 0;
    /// Forgets a timer that has not run; unknown ids are ignored.
    virtual void cancel(TimerId timer) = 0;
};

struct Address {
    std::string host;
    uint16_t port = 0;
    bool operator==(const Address&) const = default;
    auto operator<=>(const Address&) const = default;

    std::string str() const;  ///< "host:port", "[::1]:port"
    /// "host:port", "[ipv6]:port", or ":port"/"port" with `default_host`.
    static Result<Address> parse(const std::string& text, const std::string& default_host = "127.0.0.1");
    /// True for 127.0.0.0/8, ::1 and "localhost".
    bool is_loopback() const;
};

/// A connection: an ordered stream of bytes in both directions. Destroying it closes it; no callback comes after close()
/// or destruction. Destroying a Link inside its own callback is allowed.
class Link {
  public:
    virtual ~Link() = default;
    /// Queues bytes; they are sent in order, when the present callback is over, all of them in one write where possible.
    virtual void send(Bytes bytes) = 0;
    /// The same for bytes that stay where they are: `owner` is kept until they are sent.
    virtual void send_shared(ByteSpan bytes, std::shared_ptr<const void> owner) = 0;
    /// Bytes queued here and not yet taken by the operating system.
    virtual size_t unsent() const = 0;
    /// Bytes that the other end has not acknowledged: unsent() and, where the operating system tells, what is under way.
    virtual size_t unacknowledged() const { return unsent(); }
    /// Closes after what is queued was sent (`flush`), or at once.
    virtual void close(bool flush = false) = 0;
    /// Stops or resumes reading (back pressure towards the peer).
    virtual void set_reading(bool reading) = 0;
    /// "127.0.0.1:50071", for messages.
    virtual std::string peer() const = 0;

    std::function<void(ByteSpan)> on_bytes;
    /// Optional: where the next bytes may be put, which on_bytes then gets there, to save a copy; empty: anywhere.
    std::function<std::span<uint8_t>()> room;
    std::function<void(Status)> on_closed;  ///< the peer closed (unavailable) or the connection broke (io)
    std::function<void()> on_drained;       ///< unsent() has come down to 0, also when it did at once
};

class Listener {
  public:
    virtual ~Listener() = default;        ///< stops listening; accepted links live on
    virtual Address address() const = 0;  ///< with the real port when 0 was asked for
};

class Network {
  public:
    virtual ~Network() = default;
    virtual Loop& loop() = 0;
    /// Errors: unavailable (refused, unreachable), timeout, invalid_argument (no such host). On the loop.
    virtual void connect(const Address& address, Duration timeout,
                         std::function<void(Result<std::unique_ptr<Link>>)> done) = 0;
    virtual Result<std::unique_ptr<Listener>> listen(const Address& address,
                                                     std::function<void(std::unique_ptr<Link>)> on_accept) = 0;
};

}  // namespace linkcpp::net
