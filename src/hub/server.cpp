#include "hub/server.h"

#include "base/log.h"
#include "base/threads.h"
#include "hub/session.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <fmt/format.h>
#include <thread>

namespace linkcpp::hub {

namespace {

using ErrorCode = boost::system::error_code;
constexpr std::chrono::milliseconds accept_pause{100};

class Server final : public HttpServer {
  public:
    Server(const Router& router, const ServerSettings& settings)
        : shared_(std::make_shared<ServerShared>(router, settings)), work_(shared_->io.get_executor()),
          acceptor_(asio::make_strand(shared_->io)), pause_(acceptor_.get_executor()) {}
    ~Server() override { stop(); }

    Status open() {
        const ServerSettings& settings = shared_->settings;
        if (!settings.certificate.empty() || !settings.key.empty()) LINKCPP_TRY(open_tls());
        ErrorCode error;
        tcp::resolver resolver(shared_->io);
        const auto found =
            resolver.resolve(settings.listen.host, std::to_string(settings.listen.port), tcp::resolver::passive, error);
        if (error || found.empty())
            return {Code::invalid_argument, fmt::format("cannot listen on {}: no such host", settings.listen.str())};
        const tcp::endpoint endpoint = found.begin()->endpoint();
        acceptor_.open(endpoint.protocol(), error);
        if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
        if (!error) acceptor_.bind(endpoint, error);
        if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
        if (error) {
            const bool taken = error == asio::error::address_in_use;
            return {taken ? Code::unavailable : Code::io,
                    fmt::format("cannot listen on {}: {}", settings.listen.str(), error.message())};
        }
        const tcp::endpoint bound = acceptor_.local_endpoint();
        address_ = {bound.address().to_string(), bound.port()};
        return {};
    }

    void start() override {
        accept();
        for (int i = 0; i < shared_->settings.n_threads; ++i) {
            threads_.push_back(start_thread("lc-hub", [this] { shared_->io.run(); }));
        }
    }

    void stop() override {
        if (shared_->stopping.exchange(true)) return;
        asio::post(acceptor_.get_executor(), [this] {
            ErrorCode ignored;
            acceptor_.close(ignored);
            pause_.cancel();
        });
        if (!threads_.empty()) {
            stop_sessions(false);
            if (!wait_until_empty(shared_->settings.stop_limit)) stop_sessions(true);
            wait_until_empty(shared_->settings.stop_limit);
        }
        shared_->handlers.join();
        work_.reset();
        for (std::thread& thread : threads_)
            thread.join();
    }

    net::Address address() const override { return address_; }
    const ServerCounters& counters() const override { return shared_->counters; }

  private:
    Status open_tls() {
        const ServerSettings& settings = shared_->settings;
        if (settings.certificate.empty() || settings.key.empty())
            return {Code::invalid_argument, "TLS needs both a certificate and its key"};
        tls_.emplace(asio::ssl::context::tls_server);
        tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                          asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1);
        ErrorCode error;
        tls_->use_certificate_chain_file(settings.certificate, error);
        if (error) return {Code::invalid_argument, settings.certificate + ": no certificate: " + error.message()};
        tls_->use_private_key_file(settings.key, asio::ssl::context::pem, error);
        if (error) return {Code::invalid_argument, settings.key + ": not the certificate's key: " + error.message()};
        return {};
    }

    void accept() {
        acceptor_.async_accept(asio::make_strand(shared_->io), [this](const ErrorCode& error, tcp::socket socket) {
            if (shared_->stopping || error == asio::error::operation_aborted) return;
            if (error) return accept_later(error);
            shared_->counters.accepted += 1;
            if (has_place()) {
                start_session(shared_, std::move(socket), tls_ ? &*tls_ : nullptr);
            } else {
                shared_->counters.refused += 1;
            }
            accept();
        });
    }

    /// Out of descriptors, mostly: the connection waits in the queue of the system.
    void accept_later(const ErrorCode& error) {
        log_warning("cannot accept a connection: {}", error.message());
        pause_.expires_after(accept_pause);
        pause_.async_wait([this](const ErrorCode& stopped) {
            if (!stopped) accept();
        });
    }

    /// When all places are taken, the connection that has been idle for longest gives up its own.
    bool has_place() {
        const std::lock_guard lock(shared_->mutex);
        if (shared_->sessions.size() < shared_->settings.max_connections) return true;
        std::shared_ptr<Session> oldest;
        for (const auto& session : shared_->sessions) {
            if (session->idle_since() != 0 && (!oldest || session->idle_since() < oldest->idle_since()))
                oldest = session;
        }
        if (!oldest) return false;
        oldest->stop(false);
        return true;
    }

    void stop_sessions(bool now) {
        const std::lock_guard lock(shared_->mutex);
        for (const auto& session : shared_->sessions)
            session->stop(now);
    }

    bool wait_until_empty(Duration limit) {
        std::unique_lock lock(shared_->mutex);
        return shared_->no_sessions.wait_for(lock, limit, [this] { return shared_->sessions.empty(); });
    }

    std::shared_ptr<ServerShared> shared_;
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    std::optional<asio::ssl::context> tls_;
    tcp::acceptor acceptor_;
    asio::steady_timer pause_;
    net::Address address_;
    std::vector<std::thread> threads_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const Router& router, const ServerSettings& settings) {
    auto server = std::make_unique<Server>(router, settings);
    LINKCPP_TRY(server->open());
    return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace linkcpp::hub
