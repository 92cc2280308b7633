#pragma once
// HTTP/1.1 to one hub, plain or with TLS, over one connection that is kept while it lasts. Calls block the calling thread, with
// limits on silence, and can be stopped from another. Redirects are not followed, so a token never leaves for another host.
// Boost is compiled in http_client.cpp only. One thread at a time.

#include "base/bytes.h"
#include "base/clock.h"
#include "client/url.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace linkcpp::client {

struct HttpSettings {
    Duration connect_limit = std::chrono::seconds(10);  ///< names, TCP and TLS together
    Duration silence_limit = std::chrono::seconds(30);  ///< until the first byte of an answer, and between bytes
    uint64_t max_text = 16u << 20;                      ///< of an answer that is kept in memory
    std::string ca_file;                                ///< PEM; empty: the authorities that the system trusts
    /// Calls end soon after this becomes true, and later ones at once; outlives the client. nullptr: never.
    const std::atomic<bool>* stop = nullptr;
};

struct HttpRequest {
    std::string method = "GET";
    std::string target;  ///< "/api/…?…"
    std::vector<std::pair<std::string, std::string>> headers;
    std::string body;
    std::optional<Duration> silence_limit;  ///< another than the client's, for long polls
};

struct HttpAnswer {
    int status = 0;
    std::map<std::string, std::string> headers;  ///< names in lower case; the last of several
    std::string text;                            ///< the body, unless a sink took it

    const std::string& header(const std::string& lower_case_name) const;
    bool ok() const { return status >= 200 && status < 300; }
};

/// Takes a body piece by piece. `head` is the answer without its body. Not ok: the transfer ends, with this status.
using BodySink = std::function<Status(const HttpAnswer& head, ByteSpan piece)>;

class HttpClient {
  public:
    explicit HttpClient(HubUrl url, HttpSettings settings = {});
    ~HttpClient();
    HttpClient(HttpClient&&) noexcept;
    HttpClient& operator=(HttpClient&&) noexcept;

    const HubUrl& url() const;
    /// Any answer of the hub is a result, whatever its status. Errors: unavailable (refused, closed, stopped; with TLS a
    /// certificate that is not trusted), timeout, corrupt (not HTTP), exhausted (a text over the limit).
    Result<HttpAnswer> call(const HttpRequest& request);
    /// The same, but the body of a 2xx answer goes to `sink`. A body that ends before its Content-Length is `unavailable`.
    Result<HttpAnswer> stream(const HttpRequest& request, const BodySink& sink);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace linkcpp::client
