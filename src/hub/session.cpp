#include "hub/session.h"

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/stream_base.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cctype>
#include <ctime>
#include <fmt/format.h>
#include <optional>
#include <sys/sendfile.h>

namespace linkcpp::hub {

namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using ErrorCode = boost::system::error_code;

constexpr size_t first_read_bytes = 4096;
/// One turn of sendfile, and of a connection before the next one gets the thread.
constexpr size_t send_bytes = 512 << 10, turn_bytes = 4 << 20;
constexpr size_t tls_buffer_bytes = 128 << 10;
/// What is read and dropped after an error, so that the client gets to read why instead of a reset.
constexpr size_t linger_bytes = 1 << 20;
constexpr std::chrono::seconds linger_limit{2};

std::string date_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[64];
    return {text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &parts)};
}

std::string lower(std::string_view text) {
    std::string result(text);
    std::transform(result.begin(), result.end(), result.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return result;
}

int64_t steady_ticks() { return SteadyClock().now().count(); }

Response response_to(const ErrorCode& error, const ServerSettings& settings) {
    if (error == http::error::header_limit) {
        return error_response(431, "header_too_large",
                              fmt::format("the request's header is over {} bytes", settings.max_header_bytes));
    }
    if (error == http::error::body_limit) {
        return error_response(413, "body_too_large",
                              fmt::format("the request's body is over {} bytes", settings.max_body_bytes));
    }
    if (error == http::error::bad_version) return error_response(505, "http_version", "HTTP/1.1 is spoken here");
    return error_response(400, "bad_request", "this is not a request of HTTP/1.1: " + error.message());
}

/// Hands the reply back to its session, once.
class ReplyState {
  public:
    explicit ReplyState(std::function<void(Response)> answer) : answer_(std::move(answer)) {}
    ~ReplyState() { call(error_response(500, "internal", "the hub did not answer this request", "try again later")); }
    ReplyState(const ReplyState&) = delete;
    ReplyState& operator=(const ReplyState&) = delete;

    void call(Response response) {
        if (!called_.exchange(true)) answer_(std::move(response));
    }

  private:
    std::atomic<bool> called_ = false;
    std::function<void(Response)> answer_;
};

template <typename Stream>
class HttpSession final : public Session, public std::enable_shared_from_this<HttpSession<Stream>> {
    static constexpr bool is_tls = !std::is_same_v<Stream, beast::tcp_stream>;
    using std::enable_shared_from_this<HttpSession<Stream>>::shared_from_this;

  public:
    template <typename... Args>
    explicit HttpSession(std::shared_ptr<ServerShared> shared, std::string peer, Args&&... args)
        : shared_(std::move(shared)), stream_(std::forward<Args>(args)...), timer_(stream_.get_executor()),
          peer_(std::move(peer)) {
        shared_->counters.connections += 1;
    }
    ~HttpSession() override { shared_->counters.connections -= 1; }

    void start() {
        set_idle(true);
        if constexpr (is_tls) {
            layer().expires_after(shared_->settings.request_limit);
            stream_.async_handshake(asio::ssl::stream_base::server,
                                    [self = shared_from_this()](const ErrorCode& error) {
                                        error ? self->close_now() : self->wait_for_request();
                                    });
        } else {
            ErrorCode ignored;
            stream_.socket().native_non_blocking(true, ignored);
            wait_for_request();
        }
    }

    void stop(bool now) override {
        asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
            self->closing_ = true;
            if (now || self->idle_since_ != 0) self->close_now();
        });
    }
    int64_t idle_since() const override { return idle_since_; }

  private:
    beast::tcp_stream& layer() { return beast::get_lowest_layer(stream_); }
    void set_idle(bool idle) { idle_since_ = idle ? steady_ticks() : 0; }

    // --- a request comes in ------------------------------------------------------------------------------------------

    void wait_for_request() {
        if (closing_) return finish();
        set_idle(true);
        if (buffer_.size() > 0) return read_header();
        buffer_ = beast::flat_buffer();  // an idle connection keeps no memory of its last request
        layer().expires_after(shared_->settings.idle_limit);
        stream_.async_read_some(buffer_.prepare(first_read_bytes),
                                [self = shared_from_this()](const ErrorCode& error, size_t n_bytes) {
                                    if (error) return self->close_now();
                                    self->buffer_.commit(n_bytes);
                                    self->read_header();
                                });
    }

    void read_header() {
        set_idle(false);
        head_only_ = false;
        parser_.emplace();
        parser_->header_limit(shared_->settings.max_header_bytes);
        parser_->body_limit(shared_->settings.max_body_bytes);
        layer().expires_after(shared_->settings.request_limit);
        http::async_read_header(stream_, buffer_, *parser_,
                                [self = shared_from_this()](const ErrorCode& error, size_t) {
                                    error ? self->reject(error) : self->read_body();
                                });
    }

    void read_body() {
        if (parser_->is_done()) return dispatch();
        if (lower(parser_->get()[http::field::expect]) == "100-continue" && parser_->get().version() >= 11) {
            static constexpr std::string_view go_on = "HTTP/1.1 100 Continue\r\n\r\n";
            asio::async_write(stream_, asio::buffer(go_on),
                              [self = shared_from_this()](const ErrorCode& error, size_t) {
                                  error ? self->close_now() : self->read_rest();
                              });
        } else {
            read_rest();
        }
    }

    void read_rest() {
        layer().expires_after(shared_->settings.request_limit);
        http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](const ErrorCode& error, size_t) {
            error ? self->reject(error) : self->dispatch();
        });
    }

    /// What came is not a request: says why, if the client can still hear it.
    void reject(const ErrorCode& error) {
        if (error.category() != http::make_error_code(http::error::bad_method).category() ||
            error == http::error::end_of_stream || error == http::error::partial_message) {
            return close_now();
        }
        closing_ = true;
        linger_ = true;
        answer(response_to(error, shared_->settings));
    }

    // --- a handler answers it ----------------------------------------------------------------------------------------

    void dispatch() {
        layer().expires_never();
        shared_->counters.requests += 1;
        auto& message = parser_->get();
        Request request;
        request.method = std::string(message.method_string());
        head_only_ = request.method == "HEAD";
        if (head_only_) request.method = "GET";
        request.peer = peer_;
        closing_ = closing_ || !parser_->keep_alive() || message.version() < 11;
        for (const auto& field : message)
            request.headers.emplace(lower(field.name_string()), field.value());
        request.body = std::move(message.body());
        const std::string target(message.target());
        parser_.reset();
        if (!read_target(target, request)) {
            return answer(error_response(400, "bad_target", "the path or query of this request cannot be read",
                                         "a path begins with /, and no key of a query is given twice"));
        }
        if (!request.headers.contains("host") && !closing_) {
            return answer(error_response(400, "no_host", "a request of HTTP/1.1 has a Host header"));
        }
        auto state = std::make_shared<ReplyState>([self = shared_from_this()](Response response) mutable {
            if (self->shared_->stopping && self->shared_->counters.connections == 0) return;
            auto executor = self->stream_.get_executor();
            asio::post(executor, [self = std::move(self), response = std::move(response)]() mutable {
                self->answer(std::move(response));
            });
        });
        asio::post(shared_->handlers, [shared = shared_, state = std::move(state),
                                       request = std::move(request)]() mutable {
            shared->router.handle(std::move(request), [state](Response response) { state->call(std::move(response)); });
        });
    }

    void answer(Response response) {
        if (closed_) return;
        response_ = std::move(response);
        const int status = response_.status;
        shared_->counters.answers_by_class[std::clamp(status / 100, 0, 5)] += 1;
        shared_->counters.answering += 1;
        answering_ = true;
        const uint64_t n_bytes = response_.text.size() + size_of(response_.pieces);
        head_ = fmt::format("HTTP/1.1 {} {}\r\nServer: linkcpp-hub\r\nDate: {}\r\n", status, reason_phrase(status),
                            date_now());
        if (status != 204 && status != 304) head_ += fmt::format("Content-Length: {}\r\n", n_bytes);
        for (const auto& [name, value] : response_.headers)
            head_ += name + ": " + value + "\r\n";
        head_ += closing_ ? "Connection: close\r\n\r\n" : "\r\n";
        if (!head_only_) head_ += response_.text;
        if (head_only_) response_.pieces.clear();
        next_piece_ = 0;
        layer().expires_after(shared_->settings.stall_limit);
        asio::async_write(stream_, asio::buffer(head_),
                          [self = shared_from_this()](const ErrorCode& error, size_t sent) {
                              self->shared_->counters.bytes_sent += sent;
                              error ? self->close_now() : self->send_pieces();
                          });
    }

    // --- the answer goes out -----------------------------------------------------------------------------------------

    void send_pieces() {
        if (closed_) return;
        while (next_piece_ < response_.pieces.size() && response_.pieces[next_piece_].bytes == 0)
            ++next_piece_;
        if (next_piece_ == response_.pieces.size()) return answered();
        Piece& piece = response_.pieces[next_piece_];
        if (piece.fd < 0) return send_memory(piece.memory, piece.bytes);
        if constexpr (is_tls) {
            send_copy(piece);
        } else {
            send_file();
        }
    }

    void consumed(uint64_t n_bytes) {
        Piece& piece = response_.pieces[next_piece_];
        piece.bytes -= n_bytes;
        piece.offset += n_bytes;
        if (piece.memory) piece.memory += n_bytes;
        shared_->counters.bytes_sent += n_bytes;
    }

    void send_memory(const uint8_t* bytes, uint64_t n_bytes) {
        layer().expires_after(shared_->settings.stall_limit);
        stream_.async_write_some(asio::buffer(bytes, static_cast<size_t>(std::min<uint64_t>(n_bytes, send_bytes))),
                                 [self = shared_from_this()](const ErrorCode& error, size_t sent) {
                                     if (error) return self->close_now();
                                     self->consumed(sent);
                                     self->send_pieces();
                                 });
    }

    /// With TLS: the next bytes of the file through a buffer of ours. A file that became shorter ends the connection, so
    /// that the client sees an answer that is not whole.
    void send_copy(const Piece& piece) {
        if (copy_.empty()) copy_.resize(tls_buffer_bytes);
        const ssize_t n =
            pread(piece.fd, copy_.data(), static_cast<size_t>(std::min<uint64_t>(piece.bytes, copy_.size())),
                  static_cast<off_t>(piece.offset));
        if (n <= 0) return close_now();
        layer().expires_after(shared_->settings.stall_limit);
        asio::async_write(stream_, asio::buffer(copy_.data(), static_cast<size_t>(n)),
                          [self = shared_from_this()](const ErrorCode& error, size_t sent) {
                              if (error) return self->close_now();
                              self->consumed(sent);
                              self->send_pieces();
                          });
    }

    /// Without TLS: from the file to the socket inside the kernel, until the socket is full or somebody else's turn comes.
    void send_file() {
        const int socket = layer().socket().native_handle();
        for (size_t sent = 0; sent < turn_bytes;) {
            Piece& piece = response_.pieces[next_piece_];
            if (piece.bytes == 0 || piece.fd < 0) return send_pieces();
            auto offset = static_cast<off_t>(piece.offset);
            const ssize_t n =
                ::sendfile(socket, piece.fd, &offset, static_cast<size_t>(std::min<uint64_t>(piece.bytes, send_bytes)));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0 && errno == EAGAIN) return wait_writable();
            if (n <= 0) return close_now();
            consumed(static_cast<uint64_t>(n));
            sent += static_cast<size_t>(n);
        }
        asio::post(stream_.get_executor(), [self = shared_from_this()] { self->send_pieces(); });
    }

    void wait_writable() {
        timer_.expires_after(shared_->settings.stall_limit);
        timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
            // An expiry that was already under way when the socket became writable is no stall.
            if (!error && self->timer_.expiry() <= asio::steady_timer::clock_type::now()) self->close_now();
        });
        layer().socket().async_wait(tcp::socket::wait_write, [self = shared_from_this()](const ErrorCode& error) {
            self->timer_.expires_at(asio::steady_timer::time_point::max());
            error ? self->close_now() : self->send_pieces();
        });
    }

    void answered() {
        response_ = Response();
        head_ = std::string();
        copy_ = Bytes();
        end_answer();
        wait_for_request();
    }

    void end_answer() {
        if (std::exchange(answering_, false)) shared_->counters.answering -= 1;
    }

    // --- the end -----------------------------------------------------------------------------------------------------

    /// Everything was sent: says so, and after an error reads on for a moment.
    void finish() {
        if (closed_) return;
        layer().expires_after(linger_limit);
        if constexpr (is_tls) {
            stream_.async_shutdown([self = shared_from_this()](const ErrorCode&) { self->close_now(); });
        } else {
            ErrorCode ignored;
            stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
            linger_ ? drain(0) : close_now();
        }
    }

    void drain(size_t drained) {
        if (drained > linger_bytes) return close_now();
        buffer_.clear();
        stream_.async_read_some(buffer_.prepare(first_read_bytes),
                                [self = shared_from_this(), drained](const ErrorCode& error, size_t n_bytes) {
                                    error ? self->close_now() : self->drain(drained + n_bytes);
                                });
    }

    void close_now() {
        if (std::exchange(closed_, true)) return;
        end_answer();
        response_ = Response();
        timer_.cancel();
        layer().close();
        const auto self = shared_from_this();
        const std::lock_guard lock(shared_->mutex);
        shared_->sessions.erase(self);
        if (shared_->sessions.empty()) shared_->no_sessions.notify_all();
    }

    const std::shared_ptr<ServerShared> shared_;
    Stream stream_;
    asio::steady_timer timer_;
    const std::string peer_;
    std::atomic<int64_t> idle_since_ = 0;

    beast::flat_buffer buffer_;
    std::optional<http::request_parser<http::string_body>> parser_;
    Response response_;
    std::string head_;  ///< what is written first: header and text
    size_t next_piece_ = 0;
    Bytes copy_;
    bool head_only_ = false, answering_ = false;
    bool closing_ = false;  ///< no further request
    bool linger_ = false;   ///< the client may still be sending
    bool closed_ = false;
};

template <typename Stream, typename... Args>
void enter(const std::shared_ptr<ServerShared>& shared, Args&&... args) {
    auto session = std::make_shared<HttpSession<Stream>>(shared, std::forward<Args>(args)...);
    {
        const std::lock_guard lock(shared->mutex);
        shared->sessions.insert(session);
    }
    session->start();
}

}  // namespace

void start_session(std::shared_ptr<ServerShared> shared, tcp::socket socket, asio::ssl::context* tls) {
    ErrorCode error;
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(tcp::socket::keep_alive(true), error);
    std::string peer = net::Address{endpoint.address().to_string(), endpoint.port()}.str();
    if (tls) {
        enter<beast::ssl_stream<beast::tcp_stream>>(shared, std::move(peer), std::move(socket), *tls);
    } else {
        enter<beast::tcp_stream>(shared, std::move(peer), std::move(socket));
    }
}

}  // namespace linkcpp::hub
