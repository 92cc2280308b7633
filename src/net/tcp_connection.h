#pragma once
// One TCP connection, private to tcp*.cpp (it shows Boost). A Connection outlives its Link as long as an operation of it is
// under way in the loop: the operations hold shared pointers. Everything here runs on the loop.

#include "net/tcp_turns.h"

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <list>

namespace linkcpp::net {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Connection;

/// What the connections of one network share. The read buffer can be shared because only one read runs at a time, and
/// it makes a connection that sends nothing cost next to nothing.
struct TcpShared {
    std::array<uint8_t, 256 * 1024> read_buffer;
    /// Connections that were closed with flush and are not gone yet, the oldest first. Bounded: strangers that come and
    /// are turned away must not use up the file descriptors.
    std::list<Connection*> closing;
    Turns turns;
    asio::io_context io;  ///< last: connections that it still holds end with it
};

class TcpLink;

class Connection : public std::enable_shared_from_this<Connection> {
  public:
    Connection(TcpShared& shared, tcp::socket socket);
    ~Connection();

    /// Makes the Link and starts to read on the loop's next turn, so that the owner can set its callbacks.
    std::unique_ptr<Link> make_link();

    void send(Bytes bytes);
    void send_shared(ByteSpan bytes, std::shared_ptr<const void> owner);
    void close(bool flush);
    void set_reading(bool reading);
    void detach();
    /// Hands the system what was queued in this turn. `patient`: if it drains, the owner may queue more, and so on.
    void send_queued(bool patient);
    size_t unsent() const { return unsent_; }
    size_t unacknowledged();
    const std::string& peer() const { return peer_; }

  private:
    enum class State { open, flushing, lingering, closed };

    /// Bytes on their way out, which one of the other two keeps.
    struct Piece {
        ByteSpan bytes;
        Bytes own;
        std::shared_ptr<const void> owner;
    };

    void enqueue(Piece piece);
    void arm_read();
    void on_readable(const ErrorCode& error);
    bool read_once();
    void deliver(ByteSpan bytes);
    std::vector<asio::const_buffer> next_buffers() const;
    void start_write();
    void took(size_t n_bytes);
    void drained();
    void on_written(const ErrorCode& error, size_t n_bytes);
    void fail(const ErrorCode& error);
    void linger();
    void limit_closing();
    void begin_closing();
    void shut();

    TcpShared& shared_;
    tcp::socket socket_;
    asio::steady_timer closing_timer_;
    std::chrono::steady_clock::time_point closing_end_;
    std::list<Connection*>::iterator closing_at_;  ///< while flushing or lingering
    TcpLink* link_ = nullptr;                      ///< null: nobody wants callbacks any more
    std::string peer_;
    State state_ = State::open;
    bool reading_ = true;
    bool read_armed_ = false;
    bool writing_ = false;
    bool will_send_ = false;  ///< at the end of this turn
    std::deque<Piece> queue_;
    size_t front_sent_ = 0;  ///< bytes of queue_.front() that the system has taken
    size_t unsent_ = 0;
};

class TcpLink final : public Link {
  public:
    explicit TcpLink(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
    ~TcpLink() override { connection_->detach(); }

    void send(Bytes bytes) override { connection_->send(std::move(bytes)); }
    void send_shared(ByteSpan bytes, std::shared_ptr<const void> owner) override {
        connection_->send_shared(bytes, std::move(owner));
    }
    size_t unsent() const override { return connection_->unsent(); }
    size_t unacknowledged() const override { return connection_->unacknowledged(); }
    void close(bool flush) override { connection_->close(flush); }
    void set_reading(bool reading) override { connection_->set_reading(reading); }
    std::string peer() const override { return connection_->peer(); }

  private:
    std::shared_ptr<Connection> connection_;
};

}  // namespace linkcpp::net
