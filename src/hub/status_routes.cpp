#include "hub/status_routes.h"

#include "hub/json.h"

#include <fmt/format.h>

namespace linkcpp::hub {

void Metrics::add(Source source) {
    const std::lock_guard lock(mutex_);
    sources_.push_back(std::move(source));
}

std::string Metrics::text() const {
    std::vector<Source> sources;
    {
        const std::lock_guard lock(mutex_);
        sources = sources_;
    }
    std::string text;
    for (const Source& source : sources)
        source(text);
    return text;
}

void Metrics::write(std::string& text, const char* name, const char* type, const char* help, uint64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, type, value);
}

void add_status_routes(Router& router, const Metrics& metrics) {
    router.add("GET", "/healthz", [](const Request&) {
        return json_response({{"status", "ok"}, {"version", LINKCPP_VERSION}});
    });
    router.add("GET", "/metrics", [&metrics](const Request&) {
        return text_response(metrics.text(), "text/plain; version=0.0.4; charset=utf-8");
    });
}

void add_server_metrics(Metrics& metrics, const HttpServer& server) {
    const ServerCounters& counters = server.counters();
    metrics.add([&counters](std::string& text) {
        const auto gauge = [](int64_t value) { return static_cast<uint64_t>(std::max<int64_t>(0, value)); };
        Metrics::write(text, "linkcpp_hub_connections", "gauge", "Open connections", gauge(counters.connections));
        Metrics::write(text, "linkcpp_hub_answering", "gauge", "Answers under way", gauge(counters.answering));
        Metrics::write(text, "linkcpp_hub_connections_total", "counter", "Connections accepted", counters.accepted);
        Metrics::write(text, "linkcpp_hub_connections_refused_total", "counter", "Connections refused: no place",
                       counters.refused);
        Metrics::write(text, "linkcpp_hub_requests_total", "counter", "Requests read", counters.requests);
        Metrics::write(text, "linkcpp_hub_sent_bytes_total", "counter", "Bytes sent", counters.bytes_sent);
        text +=
            "# HELP linkcpp_hub_answers_total Answers by class of status\n# TYPE linkcpp_hub_answers_total counter\n";
        for (int i = 2; i < 6; ++i)
            text +=
                fmt::format("linkcpp_hub_answers_total{{class=\"{}xx\"}} {}\n", i, counters.answers_by_class[i].load());
    });
}

}  // namespace linkcpp::hub
