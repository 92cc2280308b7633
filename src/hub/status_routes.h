#pragma once
// GET /healthz and GET /metrics (Prometheus text). Any part of the hub adds its figures as a source.

#include "hub/router.h"
#include "hub/server.h"

#include <mutex>

namespace linkcpp::hub {

class Metrics {
  public:
    /// Writes lines in Prometheus' text format; called from handler threads, perhaps several at once.
    using Source = std::function<void(std::string& text)>;
    void add(Source source);
    std::string text() const;

    /// Appends one figure with its description. `type`: "counter" or "gauge".
    static void write(std::string& text, const char* name, const char* type, const char* help, uint64_t value);

  private:
    mutable std::mutex mutex_;
    // Protected by mutex_.
    std::vector<Source> sources_;
};

/// `metrics` must outlive the router.
void add_status_routes(Router& router, const Metrics& metrics);
/// The figures of the server itself, which must outlive `metrics`.
void add_server_metrics(Metrics& metrics, const HttpServer& server);

}  // namespace linkcpp::hub
