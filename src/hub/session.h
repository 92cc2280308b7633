#pragma once
// One connection of the HTTP server, from its first byte to its last. Internal to server.cpp and session.cpp.

#include "hub/server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <condition_variable>
#include <mutex>
#include <set>

namespace linkcpp::hub {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;

/// What the server asks of a connection, from any thread.
class Session {
  public:
    virtual ~Session() = default;
    /// Ends the connection: `now`, or as soon as no answer is under way.
    virtual void stop(bool now) = 0;
    /// When it began to wait for a request; 0 while it has one.
    virtual int64_t idle_since() const = 0;
};

/// Shared by the server and all sessions, which keep it alive.
struct ServerShared {
    ServerShared(const Router& r, const ServerSettings& s)
        : router(r), settings(s), io(s.n_threads), handlers(static_cast<size_t>(s.n_handler_threads)) {}

    const Router& router;
    const ServerSettings settings;
    ServerCounters counters;
    std::atomic<bool> stopping = false;

    std::mutex mutex;
    // Protected by mutex. A session enters it when it is accepted and leaves it in its destructor.
    std::set<std::shared_ptr<Session>> sessions;
    std::condition_variable no_sessions;

    asio::io_context io;
    asio::thread_pool handlers;
};

/// Starts a session on a socket whose executor is a strand of shared->io. `tls`: nullptr for a plain connection.
void start_session(std::shared_ptr<ServerShared> shared, tcp::socket socket, asio::ssl::context* tls);

}  // namespace linkcpp::hub
