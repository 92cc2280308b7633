#include "hub/market_routes.h"

#include "hub/json.h"
#include "hub/market_json.h"

#include <charconv>

namespace linkcpp::hub {

using nlohmann::json;

namespace {

constexpr uint64_t max_wait_seconds = 60;

std::string host_of(const std::string& peer) {
    const auto address = net::Address::parse(peer);
    return address.ok() ? address->host : "127.0.0.1";
}

/// A whole number of the query; `otherwise` where it is missing, nullopt where it is none or too large.
std::optional<uint64_t> query_number(const Request& request, const char* key, uint64_t otherwise, uint64_t max) {
    const auto text = request.query_value(key);
    if (!text) return otherwise;
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value > max) return std::nullopt;
    return value;
}

Response bad_query(const std::string& what) {
    return error_response(400, "bad_request", what, "see docs/openapi.yaml");
}

Response demand(const Request& request, Swarm& swarm) {
    const auto only = request.query_value("model");
    json models = json::array();
    for (const std::string& name : only ? std::vector{*only} : swarm.models()) {
        const auto segments = swarm.demand(name);
        if (!segments.ok()) return answer_to(segments.status());
        json list = json::array();
        for (const market::DemandSegment& segment : *segments)
            list.push_back(to_json(segment));
        models.push_back({{"model", name}, {"segments", list}});
    }
    return json_response({{"models", models}});
}

Response volunteer(const Request& request, Swarm& swarm, const Clock& clock) {
    const Caller caller = caller_of(request, swarm);
    if (caller.refused) return *caller.refused;
    const auto body = parse_json_object(request.body);
    if (!body.ok()) return answer_to(body.status());
    const auto wanted = volunteer_request(*body);
    if (!wanted.ok()) return answer_to(wanted.status());
    const auto lease = swarm.volunteer(caller.node, *wanted);
    if (lease.ok()) return json_response(to_json(*lease, clock.now()));
    switch (lease.status().code()) {
        case Code::exhausted:
            return error_response(429, "too_many_leases", lease.status().message(), "leases lapse without progress");
        case Code::unavailable:
            return error_response(409, "no_better_place", lease.status().message(),
                                  "keep what you have; ask again later");
        case Code::not_found:
            if (!wanted->model || swarm.demand(*wanted->model).ok())
                return error_response(409, "nothing_to_lease", lease.status().message(),
                                      "offer more, or ask again later");
            return answer_to(lease.status());
        default: return answer_to(lease.status());
    }
}

Response coverage(const Request& request, Swarm& swarm, const Clock& clock) {
    const Caller caller = caller_of(request, swarm);
    if (caller.refused) return *caller.refused;
    const auto body = parse_json_object(request.body);
    if (!body.ok()) return answer_to(body.status());
    const auto told = heartbeat(*body, host_of(request.peer));
    if (!told.ok()) return answer_to(told.status());
    const auto answer = swarm.heartbeat(caller.node, *told);
    if (!answer.ok()) return answer_to(answer.status());
    return json_response(to_json(*answer, clock.now(), market::Settings().stale_after));
}

Response leave(const Request& request, Swarm& swarm) {
    const Caller caller = caller_of(request, swarm);
    if (caller.refused) return *caller.refused;
    return json_response({{"left", swarm.leave(caller.node)}});
}

void placement(const Request& request, Swarm& swarm, const Reply& reply) {
    if (swarm.identity().is_private()) {
        const Caller caller = caller_of(request, swarm);
        if (caller.refused) return reply(*caller.refused);
    }
    const auto model = request.query_value("model");
    if (!model) return reply(bad_query("model is missing"));
    const auto answer = [reply, name = *model](const Result<Placement>& placement) {
        reply(placement.ok() ? json_response(to_json(name, *placement)) : answer_to(placement.status()));
    };
    if (!request.query_value("version")) return answer(swarm.placement(*model));
    const auto version = query_number(request, "version", 0, max_json_number);
    const auto wait = query_number(request, "wait", 30, max_wait_seconds);
    if (!version || !wait) return reply(bad_query("version must be a whole number, wait one up to 60 (seconds)"));
    swarm.wait_for_placement(*model, *version, std::chrono::seconds(*wait), answer);
}

}  // namespace

Caller caller_of(const Request& request, const Swarm& swarm) {
    constexpr std::string_view scheme = "Bearer ";
    const std::string& header = request.header("authorization");
    const bool given = header.starts_with(scheme);
    const auto node = given ? swarm.identity().node_of(header.substr(scheme.size()))
                            : Result<std::string>(Code::mismatch, "there is no token in the Authorization header");
    if (node.ok()) return {*node, std::nullopt};
    Response refused = error_response(401, "not_registered", node.status().message(), "register: POST /api/nodes");
    refused.headers.emplace_back("WWW-Authenticate", "Bearer");
    return {"", std::move(refused)};
}

Response answer_to(const Status& status) {
    switch (status.code()) {
        case Code::invalid_argument:
            return error_response(400, "bad_request", status.message(), "see docs/openapi.yaml");
        case Code::not_found:
            return error_response(404, "not_found", status.message(), "GET /api/proxy/models lists the models");
        case Code::mismatch: return error_response(403, "refused", status.message(), "see docs/MARKET.md");
        default:
            // What is wrong with our disk is for the operator, not for a client.
            return error_response(503, "unavailable", "the hub cannot do this now", "try again later");
    }
}

void add_market_routes(Router& router, Swarm& swarm, const Clock& clock) {
    router.add("GET", "/api/expert-demand", [&swarm](const Request& request) { return demand(request, swarm); });
    router.add("POST", "/api/expert-volunteer",
               [&swarm, &clock](const Request& request) { return volunteer(request, swarm, clock); });
    router.add("POST", "/api/expert-coverage",
               [&swarm, &clock](const Request& request) { return coverage(request, swarm, clock); });
    router.add("DELETE", "/api/expert-coverage", [&swarm](const Request& request) { return leave(request, swarm); });
    router.add_async("GET", "/api/placement",
                     [&swarm](const Request& request, const Reply& reply) { placement(request, swarm, reply); });
}

void add_swarm_metrics(Metrics& metrics, Swarm& swarm) {
    metrics.add([&swarm](std::string& text) {
        const Swarm::Figures figures = swarm.figures();
        Metrics::write(text, "linkcpp_hub_nodes", "gauge", "Nodes on the map", figures.nodes);
        Metrics::write(text, "linkcpp_hub_leases", "gauge", "Open leases", figures.leases);
        Metrics::write(text, "linkcpp_hub_placement_waiting", "gauge", "Long polls of placements", figures.waiting);
        Metrics::write(text, "linkcpp_hub_heartbeats_total", "counter", "Coverage heartbeats", figures.heartbeats);
        Metrics::write(text, "linkcpp_hub_leases_total", "counter", "Leases given", figures.leases_given);
        Metrics::write(text, "linkcpp_hub_receipts_total", "counter", "Receipts posted", figures.receipts);
        Metrics::write(text, "linkcpp_hub_rows_total", "counter", "Rows of receipts posted", figures.rows);
    });
}

}  // namespace linkcpp::hub
