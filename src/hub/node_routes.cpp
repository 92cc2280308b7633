// POST /api/nodes (in two steps), POST /api/receipts, GET /api/nodes/{id}/ledger.
#include "base/log.h"
#include "hub/json.h"
#include "hub/market_json.h"
#include "hub/market_routes.h"

#include <charconv>

namespace linkcpp::hub {

using nlohmann::json;

namespace {

constexpr int max_entries = 1000;

int64_t whole_seconds(Duration duration) { return std::chrono::duration_cast<std::chrono::seconds>(duration).count(); }

/// First a nonce is asked for, then the same key comes with its signature.
Response register_node(const Request& request, Swarm& swarm) {
    if (!swarm.takes_nodes())
        return error_response(403, "closed", "this hub takes no nodes",
                              "its operator can start it with --join-token FILE, or with --open");
    const auto body = parse_json_object(request.body);
    if (!body.ok()) return answer_to(body.status());
    Fields fields(*body);
    RegistrationProof proof;
    proof.node.bytes = fields.hex<32>("public_key");
    const bool first_step = !fields.has("signature") && !fields.has("nonce");
    if (!first_step) {
        proof.nonce = fields.text("nonce");
        proof.signature = fields.hex<64>("signature");
        proof.join_proof = fields.text_or("join_proof", "");
    }
    if (!fields.status().ok()) return answer_to(fields.status());
    const Identity& identity = swarm.identity();
    if (first_step) {
        return json_response({{"hub", identity.hub().hex()},
                              {"nonce", identity.challenge(proof.node)},
                              {"expires", whole_seconds(identity.nonce_time())},
                              {"private", identity.is_private()}});
    }
    const Result<std::string> token = swarm.enter(proof);
    if (token.ok()) {
        return json_response(
            {{"node", proof.node.fingerprint()}, {"token", *token}, {"expires", whole_seconds(identity.token_time())}});
    }
    if (token.status().code() == Code::mismatch)
        return error_response(403, "not_proven", token.status().message(),
                              "ask for a new nonce and sign it; docs/MARKET.md");
    log_error("a node was not registered: {}", token.status().message());
    return answer_to(token.status());
}

Response post_receipts(const Request& request, Swarm& swarm) {
    const Caller caller = caller_of(request, swarm);
    if (caller.refused) return *caller.refused;
    const auto body = parse_json_object(request.body);
    if (!body.ok()) return answer_to(body.status());
    const auto receipts = signed_receipts(*body);
    if (!receipts.ok()) return answer_to(receipts.status());
    const auto results = swarm.post(*receipts);
    if (!results.ok()) {
        log_error("receipts were not posted: {}", results.status().message());
        return answer_to(results.status());
    }
    json list = json::array();
    for (const ReceiptResult& result : *results)
        list.push_back(to_json(result));
    return json_response({{"results", list}});
}

std::optional<int64_t> number_from(const Request& request, const char* key, int64_t otherwise, int64_t max) {
    const auto text = request.query_value(key);
    if (!text) return otherwise;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < 0 || value > max) return std::nullopt;
    return value;
}

Response ledger(const Request& request, Swarm& swarm) {
    if (swarm.identity().is_private()) {
        const Caller caller = caller_of(request, swarm);
        if (caller.refused) return *caller.refused;
    }
    const std::string& node = request.parameters.at("id");
    const auto after = number_from(request, "after", 0, INT64_MAX),
               limit = number_from(request, "limit", 100, max_entries);
    if (!after || !limit)
        return error_response(400, "bad_request", "after must be a whole number, limit one up to 1000",
                              "see docs/openapi.yaml");
    const auto known = swarm.store().node_key(node);
    if (!known.ok()) return answer_to(known.status());
    if (!*known)
        return error_response(404, "no_such_node", "no node of this id has registered here",
                              "ids are 32 hexadecimal digits");
    const auto balance = swarm.store().balance(node);
    const auto entries = swarm.store().entries(node, *after, static_cast<int>(*limit));
    if (!balance.ok() || !entries.ok()) return answer_to(balance.ok() ? entries.status() : balance.status());
    json list = json::array();
    for (const LedgerEntry& entry : *entries)
        list.push_back(to_json(entry));
    return json_response({{"node", node}, {"balance", *balance}, {"entries", list}});
}

}  // namespace

void add_node_routes(Router& router, Swarm& swarm) {
    router.add("POST", "/api/nodes", [&swarm](const Request& request) { return register_node(request, swarm); });
    router.add("POST", "/api/receipts", [&swarm](const Request& request) { return post_receipts(request, swarm); });
    router.add("GET", "/api/nodes/{id}/ledger", [&swarm](const Request& request) { return ledger(request, swarm); });
}

}  // namespace linkcpp::hub
