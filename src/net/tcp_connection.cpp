#include "net/tcp_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <fmt/format.h>
#include <sys/ioctl.h>
#ifdef __linux__
#include <linux/sockios.h>
#endif

namespace linkcpp::net {

namespace {

constexpr size_t max_buffers_per_write = 64;  // what one writev of Asio takes
// How long a closing connection may take: without progress (bytes sent, or bytes that the peer goes on sending), and in all.
constexpr std::chrono::seconds idle_limit{5}, closing_limit{30};

/// Beyond this the oldest one is given up. More than a server keeps open, so that an orderly end reaches all of those.
constexpr size_t max_closing = 256;

std::string name_of(const tcp::socket& socket) {
    ErrorCode error;
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    return error ? "unknown" : Address{endpoint.address().to_string(), endpoint.port()}.str();
}

bool would_block(const ErrorCode& error) {
    return error == asio::error::would_block || error == asio::error::try_again || error == asio::error::interrupted;
}

}  // namespace

Connection::Connection(TcpShared& shared, tcp::socket socket)
    : shared_(shared), socket_(std::move(socket)), closing_timer_(shared.io), peer_(name_of(socket_)) {
    ErrorCode ignored;  // a connection that broke meanwhile shows at the first read
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(tcp::socket::keep_alive(true), ignored);
    socket_.non_blocking(true, ignored);
}

Connection::~Connection() {
    if (state_ == State::flushing || state_ == State::lingering) shared_.closing.erase(closing_at_);
}

std::unique_ptr<Link> Connection::make_link() {
    auto link = std::make_unique<TcpLink>(shared_from_this());
    link_ = link.get();
    arm_read();
    return link;
}

// --- reading ---------------------------------------------------------------------------------------------------------

void Connection::arm_read() {
    if (read_armed_) return;
    read_armed_ = true;
    socket_.async_wait(
        tcp::socket::wait_read,
        shared_.turns.handler([self = shared_from_this()](const ErrorCode& error) { self->on_readable(error); }));
}

void Connection::on_readable(const ErrorCode& error) {
    read_armed_ = false;
    if (error || state_ == State::closed || state_ == State::flushing || (state_ == State::open && !reading_)) return;
    // One buffer per turn, so that a fast peer does not keep the others waiting.
    if (read_once() && (state_ == State::lingering || (state_ == State::open && reading_))) arm_read();
}

/// False: the connection is over.
bool Connection::read_once() {
    std::span<uint8_t> into = shared_.read_buffer;
    if (state_ == State::open && link_ && link_->room) {
        if (const auto room = link_->room(); !room.empty()) into = room;
    }
    ErrorCode error;
    const size_t n_bytes = socket_.read_some(asio::buffer(into.data(), into.size()), error);
    if (would_block(error)) return true;
    if (error) {
        fail(error);
        return false;
    }
    if (state_ == State::open) deliver(into.first(n_bytes));
    if (state_ == State::lingering) limit_closing();
    return state_ != State::closed;
}

void Connection::deliver(ByteSpan bytes) {
    if (!link_ || !link_->on_bytes) return;
    // The callback may destroy the link that holds it, so it runs from here and goes back if the link is still there.
    auto callback = std::move(link_->on_bytes);
    link_->on_bytes = nullptr;
    callback(bytes);
    if (link_ && !link_->on_bytes) link_->on_bytes = std::move(callback);
}

void Connection::set_reading(bool reading) {
    reading_ = reading;
    if (reading && state_ == State::open) arm_read();
}

// --- writing ---------------------------------------------------------------------------------------------------------

void Connection::send(Bytes bytes) {
    const ByteSpan span(bytes);
    enqueue({span, std::move(bytes), nullptr});
}

void Connection::send_shared(ByteSpan bytes, std::shared_ptr<const void> owner) {
    enqueue({bytes, {}, std::move(owner)});
}

void Connection::enqueue(Piece piece) {
    if (state_ != State::open || piece.bytes.empty()) return;
    unsent_ += piece.bytes.size();
    queue_.push_back(std::move(piece));
    if (writing_ || std::exchange(will_send_, true)) return;
    shared_.turns.will_send(shared_from_this());
}

void Connection::send_queued(bool patient) {
    will_send_ = false;
    while (!writing_ && !queue_.empty() && (state_ == State::open || state_ == State::flushing)) {
        if (!patient) return start_write();
        ErrorCode error;
        const size_t n_bytes = socket_.write_some(next_buffers(), error);
        if (error) return start_write();  // it waits, or tells what is wrong
        took(n_bytes);
        if (queue_.empty()) drained();
    }
}

size_t Connection::unacknowledged() {
    size_t under_way = 0;
#ifdef SIOCOUTQ
    int in_system = 0;
    if (state_ == State::open && ioctl(socket_.native_handle(), SIOCOUTQ, &in_system) == 0 && in_system > 0)
        under_way = static_cast<size_t>(in_system);
#endif
    return unsent_ + under_way;
}

std::vector<asio::const_buffer> Connection::next_buffers() const {
    std::vector<asio::const_buffer> buffers;
    buffers.reserve(std::min(queue_.size(), max_buffers_per_write));
    size_t skip = front_sent_;
    for (const Piece& piece : queue_) {
        if (buffers.size() == max_buffers_per_write) break;
        buffers.emplace_back(piece.bytes.data() + skip, piece.bytes.size() - skip);
        skip = 0;
    }
    return buffers;
}

void Connection::start_write() {
    writing_ = true;
    socket_.async_write_some(next_buffers(),
                             shared_.turns.handler([self = shared_from_this()](const ErrorCode& error, size_t n_bytes) {
                                 self->on_written(error, n_bytes);
                             }));
}

void Connection::on_written(const ErrorCode& error, size_t n_bytes) {
    writing_ = false;
    if (state_ == State::closed) return;
    if (error) {
        // The peer may have said why before it closed: what it sent is still there to be read.
        while (state_ == State::open && reading_) {
            ErrorCode stop;
            const size_t n_read = socket_.read_some(asio::buffer(shared_.read_buffer), stop);
            if (stop || n_read == 0) break;
            deliver({shared_.read_buffer.data(), n_read});
        }
        if (state_ != State::closed) fail(error);
        return;
    }
    took(n_bytes);
    if (queue_.empty()) return drained();
    if (state_ == State::flushing) limit_closing();
    start_write();
}

void Connection::took(size_t n_bytes) {
    unsent_ -= n_bytes;
    front_sent_ += n_bytes;
    while (!queue_.empty() && front_sent_ >= queue_.front().bytes.size()) {
        front_sent_ -= queue_.front().bytes.size();
        queue_.pop_front();
    }
}

void Connection::drained() {
    if (state_ == State::flushing) return linger();
    if (!link_ || !link_->on_drained) return;
    auto callback = std::move(link_->on_drained);
    link_->on_drained = nullptr;
    callback();
    if (link_ && !link_->on_drained) link_->on_drained = std::move(callback);
}

/// A callback that always has more to send must not keep the others waiting.
void Turns::send_all() {
    constexpr int rounds = 4;
    for (int round = 0; !senders_.empty(); ++round) {
        for (const auto& connection : std::exchange(senders_, {}))
            connection->send_queued(round < rounds);
    }
}

// --- the end ---------------------------------------------------------------------------------------------------------

void Connection::fail(const ErrorCode& error) {
    const bool tell = state_ == State::open && link_;
    const bool ended = error == asio::error::eof;
    TcpLink* link = link_;
    shut();
    if (!tell) return;
    link_ = nullptr;
    auto callback = std::move(link->on_closed);
    link->on_closed = nullptr;
    if (!callback) return;
    callback(ended ? Status(Code::unavailable, fmt::format("{} closed the connection", peer_))
                   : Status(Code::io, fmt::format("the connection to {} broke: {}", peer_, error.message())));
}

void Connection::close(bool flush) {
    link_ = nullptr;
    if (state_ != State::open) {
        if (!flush) shut();
        return;
    }
    if (!flush) {
        send_queued(true);
        return shut();
    }
    begin_closing();
    closing_end_ = std::chrono::steady_clock::now() + closing_limit;
    limit_closing();
    if (!writing_ && queue_.empty()) linger();
}

void Connection::begin_closing() {
    if (shared_.closing.size() >= max_closing) {
        // Rather one that has sent everything and only waits for the other end.
        const auto lingering = std::find_if(shared_.closing.begin(), shared_.closing.end(),
                                            [](const Connection* other) { return other->state_ == State::lingering; });
        (lingering != shared_.closing.end() ? *lingering : shared_.closing.front())->shut();
    }
    state_ = State::flushing;
    closing_at_ = shared_.closing.insert(shared_.closing.end(), this);
}

/// The system has everything. A socket that is closed while it holds unread input resets the connection, and the reset
/// destroys what the peer has not read yet; so say that we are done and read on until the peer is done too.
void Connection::linger() {
    state_ = State::lingering;
    ErrorCode error;
    socket_.shutdown(tcp::socket::shutdown_send, error);
    if (error) return shut();
    limit_closing();
    arm_read();
}

void Connection::limit_closing() {
    closing_timer_.expires_at(std::min(std::chrono::steady_clock::now() + idle_limit, closing_end_));
    closing_timer_.async_wait(shared_.turns.handler([self = shared_from_this()](const ErrorCode& error) {
        if (!error) self->shut();
    }));
}

void Connection::detach() {
    // A link that was closed with `flush` goes on sending after its owner forgot it.
    link_ = nullptr;
    if (state_ != State::open) return;
    send_queued(true);  // what is too much for the system now is lost
    shut();
}

void Connection::shut() {
    if (state_ == State::flushing || state_ == State::lingering) shared_.closing.erase(closing_at_);
    state_ = State::closed;
    ErrorCode ignored;
    socket_.close(ignored);
    closing_timer_.cancel();
    if (!writing_) queue_.clear();
    unsent_ = 0;
}

}  // namespace linkcpp::net
