#include "net/tcp.h"

#include "base/log.h"
#include "net/tcp_connection.h"
#include "net/tcp_threads.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <map>
#include <thread>
#include <utility>

namespace linkcpp::net {

namespace {

class TcpLoop final : public Loop {
  public:
    TcpLoop(TcpShared& shared, TcpThreads& threads) : shared_(shared), threads_(threads) {}

    Instant now() const override { return clock_.now(); }
    void post(Task task) override {
        asio::post(shared_.io, shared_.turns.handler(std::move(task)));
        threads_.posted();
    }
    void run(const Task& task) override {
        shared_.turns.run(task);
        threads_.happened();
    }
    bool run_until(const std::function<bool()>& done) override { return threads_.run_until(done); }
    void run_after(Task task) override {
        shared_.turns.put_off([this, task = std::move(task)] { threads_.run_long(task); });
    }

    TimerId after(Duration delay, Task task) override {
        const TimerId id = ++last_timer_;
        auto [entry, added] = timers_.emplace(id, asio::steady_timer(shared_.io, delay));
        entry->second.async_wait(shared_.turns.handler([this, id, task = std::move(task)](const ErrorCode& error) {
            // A timer that was cancelled after it expired is not in the map any more.
            if (!error && timers_.erase(id) == 1) task();
        }));
        return id;
    }
    void cancel(TimerId timer) override { timers_.erase(timer); }

  private:
    TcpShared& shared_;
    TcpThreads& threads_;
    SteadyClock clock_;
    std::map<TimerId, asio::steady_timer> timers_;
    TimerId last_timer_ = 0;
};

/// One call of connect(): name, attempts, time limit; whichever ends it first calls `done`.
struct Connecting : std::enable_shared_from_this<Connecting> {
    Connecting(TcpShared& shared_state, Address where) : shared(shared_state), address(std::move(where)) {}

    void start(Duration timeout) {
        timer.expires_after(timeout);
        timer.async_wait(shared.turns.handler([self = shared_from_this()](const ErrorCode& error) {
            if (!error) self->end({Code::timeout, fmt::format("no connection to {} in time", self->address.str())});
        }));
        ErrorCode not_a_number;
        const asio::ip::address number = asio::ip::make_address(address.host, not_a_number);
        if (!not_a_number) {
            socket.async_connect(tcp::endpoint(number, address.port),
                                 shared.turns.handler([self = shared_from_this()](const ErrorCode& error) {
                                     self->on_connected(error);
                                 }));
            return;
        }
        resolver.async_resolve(
            address.host, std::to_string(address.port),
            shared.turns.handler(
                [self = shared_from_this()](const ErrorCode& error, const tcp::resolver::results_type& found) {
                    self->on_resolved(error, found);
                }));
    }

    void on_resolved(const ErrorCode& error, const tcp::resolver::results_type& found) {
        if (!done) return;
        if (error) {
            return end({Code::invalid_argument, fmt::format("no such host: {} ({})", address.host, error.message())});
        }
        asio::async_connect(
            socket, found,
            shared.turns.handler([self = shared_from_this()](const ErrorCode& failed, const tcp::endpoint&) {
                self->on_connected(failed);
            }));
    }

    void on_connected(const ErrorCode& error) {
        if (!done) return;
        if (error) {
            return end({Code::unavailable, fmt::format("cannot connect to {}: {}", address.str(), error.message())});
        }
        timer.cancel();
        auto callback = std::exchange(done, nullptr);
        callback(std::make_shared<Connection>(shared, std::move(socket))->make_link());
    }

    void end(Status status) {
        if (!done) return;
        ErrorCode ignored;
        socket.close(ignored);
        resolver.cancel();
        timer.cancel();
        auto callback = std::exchange(done, nullptr);
        callback(std::move(status));
    }

    TcpShared& shared;
    Address address;
    tcp::socket socket{shared.io};
    tcp::resolver resolver{shared.io};
    asio::steady_timer timer{shared.io};
    std::function<void(Result<std::unique_ptr<Link>>)> done;
};

struct Accepting : std::enable_shared_from_this<Accepting> {
    explicit Accepting(TcpShared& shared_state) : shared(shared_state) {}

    Status open(const Address& address) {
        ErrorCode error;
        asio::ip::address number = asio::ip::make_address(address.host, error);
        if (error) {
            tcp::resolver resolver(shared.io);
            auto found = resolver.resolve(address.host, std::to_string(address.port), error);
            if (error || found.empty()) {
                return {Code::invalid_argument, fmt::format("no such host: {}", address.host)};
            }
            number = found.begin()->endpoint().address();
        }
        const tcp::endpoint endpoint(number, address.port);
        acceptor.open(endpoint.protocol(), error);
        if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor.bind(endpoint, error);
        if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
        if (error) return {Code::io, fmt::format("cannot listen on {}: {}", address.str(), error.message())};
        return {};
    }

    void accept() {
        acceptor.async_accept(
            shared.turns.handler([self = shared_from_this()](const ErrorCode& error, tcp::socket& socket) {
                if (self->stopped) return;
                if (error) return self->wait_and_accept(error);
                // The callback may destroy the listener, and with it itself, so it runs from here.
                auto callback = std::move(self->on_accept);
                callback(std::make_shared<Connection>(self->shared, std::move(socket))->make_link());
                if (self->stopped) return;
                self->on_accept = std::move(callback);
                self->accept();
            }));
    }

    /// Out of file descriptors, most likely: connections that end will free some.
    void wait_and_accept(const ErrorCode& error) {
        const auto now = std::chrono::steady_clock::now();
        if (now >= quiet_until) {
            log_warning("cannot accept connections for now: {}", error.message());
            quiet_until = now + std::chrono::seconds(10);
        }
        timer.expires_after(std::chrono::milliseconds(100));
        timer.async_wait(shared.turns.handler([self = shared_from_this()](const ErrorCode& cancelled) {
            if (!cancelled && !self->stopped) self->accept();
        }));
    }

    void stop() {
        ErrorCode ignored;
        acceptor.close(ignored);
        timer.cancel();
        stopped = true;
        on_accept = nullptr;
    }

    TcpShared& shared;
    tcp::acceptor acceptor{shared.io};
    asio::steady_timer timer{shared.io};
    bool stopped = false;
    std::chrono::steady_clock::time_point quiet_until;  // the next line that connections cannot be accepted
    std::function<void(std::unique_ptr<Link>)> on_accept;
};

class TcpListener final : public Listener {
  public:
    explicit TcpListener(std::shared_ptr<Accepting> accepting) : accepting_(std::move(accepting)) {}
    ~TcpListener() override { accepting_->stop(); }
    Address address() const override {
        ErrorCode error;
        const tcp::endpoint endpoint = accepting_->acceptor.local_endpoint(error);
        return error ? Address{} : Address{endpoint.address().to_string(), endpoint.port()};
    }

  private:
    std::shared_ptr<Accepting> accepting_;
};

}  // namespace

struct TcpNetwork::Impl {
    explicit Impl(int n_threads) : threads(shared.io, n_threads), loop(shared, threads) {}

    TcpShared shared;
    TcpThreads threads;
    TcpLoop loop;
};

TcpNetwork::TcpNetwork(int n_threads) : impl_(std::make_unique<Impl>(n_threads)) {}

TcpNetwork::~TcpNetwork() { stop(); }

void TcpNetwork::stop() { impl_->threads.stop(); }

bool TcpNetwork::flush(Duration limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (true) {
        size_t n_closing = 0;
        loop().run([&] { n_closing = impl_->shared.closing.size(); });
        if (n_closing == 0) return true;
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

Loop& TcpNetwork::loop() { return impl_->loop; }

void TcpNetwork::connect(const Address& address, Duration timeout,
                         std::function<void(Result<std::unique_ptr<Link>>)> done) {
    auto connecting = std::make_shared<Connecting>(impl_->shared, address);
    connecting->done = std::move(done);
    connecting->start(timeout);
}

Result<std::unique_ptr<Listener>> TcpNetwork::listen(const Address& address,
                                                     std::function<void(std::unique_ptr<Link>)> on_accept) {
    auto accepting = std::make_shared<Accepting>(impl_->shared);
    LINKCPP_TRY(accepting->open(address));
    accepting->on_accept = std::move(on_accept);
    accepting->accept();
    return Result<std::unique_ptr<Listener>>(std::make_unique<TcpListener>(std::move(accepting)));
}

}  // namespace linkcpp::net
