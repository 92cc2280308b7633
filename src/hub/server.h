#pragma once
// The HTTP/1.1 server, plain or with TLS. A few network threads ("lc-hub") move bytes for all connections, a few others
// ("lc-hub-work") run the handlers, so that neither a slow disk nor a slow client holds up somebody else. Files are sent
// by sendfile(2) without TLS, through one bounded buffer per connection with it. Boost is compiled in server.cpp and
// session.cpp only. The process has to ignore SIGPIPE.

#include "base/clock.h"
#include "base/status.h"
#include "hub/router.h"
#include "net/loop.h"

#include <atomic>

namespace linkcpp::hub {

struct ServerSettings {
    net::Address listen{"127.0.0.1", 19000};  ///< port 0: any free one
    std::string certificate, key;             ///< PEM files; both empty: no TLS
    int n_threads = 2;                        ///< that move bytes
    int n_handler_threads = 4;
    size_t max_connections = 4096;  ///< beyond, the one that was idle for longest goes, else the new one
    uint32_t max_header_bytes = 16 << 10;
    uint64_t max_body_bytes = 64 << 10;
    Duration idle_limit = std::chrono::seconds(75);     ///< between requests
    Duration request_limit = std::chrono::seconds(20);  ///< for a header, and for a body; for TLS's handshake
    Duration stall_limit = std::chrono::seconds(30);    ///< without a byte going out
    Duration stop_limit = std::chrono::seconds(5);      ///< for answers under way when the server stops
};

/// Since the server started. Any thread may read.
struct ServerCounters {
    std::atomic<uint64_t> accepted = 0, refused = 0, requests = 0, bytes_sent = 0;
    std::atomic<uint64_t> answers_by_class[6] = {};  ///< [4]: answers 400 to 499
    std::atomic<int64_t> connections = 0, answering = 0;
};

class HttpServer {
  public:
    /// Listens; answers begin at start(). `router` must outlive the server. Errors: io, unavailable (the address is
    /// taken), invalid_argument (no such host; certificate or key that cannot be used).
    static Result<std::unique_ptr<HttpServer>> listen(const Router& router, const ServerSettings& settings);

    virtual ~HttpServer() = default;  ///< stop()
    virtual void start() = 0;
    /// No new connections, idle ones closed; answers under way get settings.stop_limit. Returns when all threads ended.
    virtual void stop() = 0;
    virtual net::Address address() const = 0;  ///< with the real port
    virtual const ServerCounters& counters() const = 0;
};

}  // namespace linkcpp::hub
