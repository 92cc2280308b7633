#include "hub/market_json.h"

#include "net/loop.h"

#include <fmt/format.h>

namespace linkcpp::hub {

using nlohmann::json;

namespace {

constexpr size_t max_holds = 96, max_progress = 16, max_receipts = 100;

json to_json(const market::Range& range) { return json::array({range.begin, range.end}); }

json to_json(const market::Holding& what) {
    return {{"model", what.model}, {"layers", to_json(what.block.layers)}, {"experts", to_json(what.block.experts)}};
}

/// Rounded up.
int64_t whole_seconds(Duration duration) { return std::chrono::ceil<std::chrono::seconds>(duration).count(); }

/// Names of models are made of characters that mean nothing in a URL (hub/shelf.h).
std::string shard_url(const market::Holding& what) {
    const auto& [layers, experts] = what.block;
    return fmt::format("/api/proxy/models/{}/expert-shard?layers={}:{}&experts={}:{}", what.model, layers.begin,
                       layers.end, experts.begin, experts.end);
}

market::Range range(Fields& fields, const char* name) {
    const auto [begin, end] = fields.pair(name, UINT32_MAX);
    return {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

/// {"model", "layers": [a, b] or "layer": a, "experts": [c, d]}
market::Holding holding(Fields& fields) {
    market::Holding what;
    what.model = fields.text("model");
    if (fields.has("layer") && !fields.has("layers")) {
        what.block.layers.begin = static_cast<uint32_t>(fields.number("layer", UINT32_MAX - 1));
        what.block.layers.end = what.block.layers.begin + 1;
    } else {
        what.block.layers = range(fields, "layers");
    }
    what.block.experts = range(fields, "experts");
    return what;
}

}  // namespace

json to_json(const market::DemandSegment& segment) {
    return {{"layer", segment.layer},   {"experts", to_json(segment.experts)}, {"replicas", segment.replicas},
            {"target", segment.target}, {"scarcity", segment.scarcity},        {"reward", segment.reward}};
}

json to_json(const market::Lease& lease, Instant now) {
    json value = to_json(lease.what);
    value["lease"] = lease.id;
    value["layer"] = lease.what.block.layers.begin;
    value["scarcity"] = lease.scarcity;
    value["replicas"] = lease.replicas;
    value["target"] = lease.target;
    value["reward"] = lease.reward;
    value["bytes"] = lease.bytes;
    value["url"] = shard_url(lease.what);
    value["expires"] = whole_seconds(lease.expires - now);
    return value;
}

json to_json(const market::HeartbeatAnswer& answer, Instant now, Duration stale_after) {
    json leases = json::array(), holds = json::array();
    for (const market::Lease& lease : answer.leases)
        leases.push_back({{"lease", lease.id}, {"expires", whole_seconds(lease.expires - now)}});
    for (const auto& held : answer.holds)
        holds.push_back({{"reward", held.reward}, {"replicas", held.replicas}, {"target", held.target}});
    return {
        {"stale_after", whole_seconds(stale_after)}, {"leases", leases}, {"lapsed", answer.unknown}, {"holds", holds}};
}

json to_json(const std::string& model, const Placement& placement) {
    json holders = json::array();
    for (const market::Holder& holder : placement.holders) {
        json holds = json::array();
        for (const market::Block& block : holder.blocks)
            holds.push_back({{"layers", to_json(block.layers)}, {"experts", to_json(block.experts)}});
        holders.push_back({{"node", holder.node},
                           {"address", holder.address},
                           {"numeric_class", holder.numeric_class},
                           {"load", holder.load},
                           {"draining", holder.draining},
                           {"holds", holds}});
    }
    return {{"model", model}, {"version", placement.version}, {"holders", holders}};
}

json to_json(const LedgerEntry& entry) {
    return {{"number", entry.number}, {"id", entry.id},         {"from", entry.from}, {"to", entry.to},
            {"amount", entry.amount}, {"reason", entry.reason}, {"at", entry.at}};
}

json to_json(const ReceiptResult& result) {
    if (!result.refused.ok()) return {{"id", result.id}, {"result", "refused"}, {"reason", result.refused.message()}};
    switch (result.posted) {
        case Posted::done: return {{"id", result.id}, {"result", "posted"}};
        case Posted::duplicate: return {{"id", result.id}, {"result", "duplicate"}};
        case Posted::conflict:
            return {{"id", result.id},
                    {"result", "refused"},
                    {"reason", "another receipt of this backbone has the same sequence number"}};
        case Posted::no_credit:
            return {{"id", result.id}, {"result", "no_credit"}, {"reason", "the payer's balance does not cover it"}};
    }
    return {};
}

Result<market::VolunteerRequest> volunteer_request(const json& body) {
    Fields fields(body);
    market::VolunteerRequest request;
    request.budget.max_bytes = fields.number_or("max_bytes", UINT64_MAX);
    request.budget.max_experts = fields.number_or("max_experts", UINT64_MAX);
    if (!fields.has("max_bytes") && !fields.has("max_experts"))
        fields.fail("max_bytes", "or max_experts must be given");
    if (fields.has("model")) request.model = fields.text("model");
    if (fields.has("instead_of")) {
        Fields inner(body["instead_of"], "instead_of");
        request.instead_of = holding(inner);
        LINKCPP_TRY(inner.status());
    }
    LINKCPP_TRY(fields.status());
    return request;
}

Result<market::Heartbeat> heartbeat(const json& body, const std::string& peer_host) {
    Fields fields(body);
    market::Heartbeat heartbeat;
    int index = 0;
    for (const json* element : fields.list("holds", max_holds)) {
        Fields inner(*element, fmt::format("holds[{}]", index++));
        heartbeat.holds.push_back(holding(inner));
        LINKCPP_TRY(inner.status());
    }
    index = 0;
    for (const json* element : fields.list("progress", max_progress, false)) {
        Fields inner(*element, fmt::format("progress[{}]", index++));
        heartbeat.progress.push_back({inner.text("lease"), inner.number("bytes")});
        LINKCPP_TRY(inner.status());
    }
    heartbeat.address = fields.text_or("address", "");
    heartbeat.numeric_class = fields.text_or("numeric_class", "", 1000);
    heartbeat.load = fields.real_or("load", 0);
    heartbeat.draining = fields.flag_or("draining", false);
    LINKCPP_TRY(fields.status());
    if (heartbeat.address.empty() && heartbeat.holds.empty()) return heartbeat;
    const auto address = net::Address::parse(heartbeat.address, peer_host);
    if (!address.ok() || address->port == 0 || !is_plain_name(heartbeat.address))
        return {Code::invalid_argument,
                "address must be HOST:PORT, or :PORT for the host that this request comes from"};
    heartbeat.address = address->str();
    return heartbeat;
}

Result<std::vector<SignedReceipt>> signed_receipts(const json& body) {
    Fields fields(body);
    std::vector<SignedReceipt> receipts;
    for (const json* element : fields.list("receipts", max_receipts)) {
        Fields inner(*element, fmt::format("receipts[{}]", receipts.size()));
        SignedReceipt signed_receipt;
        Receipt& receipt = signed_receipt.receipt;
        receipt.backbone = inner.text("backbone", 64);
        receipt.payer = inner.text_or("payer", receipt.backbone, 64);
        receipt.node = inner.text("node", 64);
        receipt.model = inner.text("model");
        const market::Range layers = range(inner, "layers"), experts = range(inner, "experts");
        receipt.layer_begin = layers.begin, receipt.layer_end = layers.end;
        receipt.expert_begin = experts.begin, receipt.expert_end = experts.end;
        receipt.rows = inner.number("rows");
        const auto [period_begin, period_end] = inner.pair("period");
        receipt.period_begin = static_cast<int64_t>(period_begin),
        receipt.period_end = static_cast<int64_t>(period_end);
        receipt.sequence = inner.number("sequence");
        signed_receipt.signature = inner.hex<64>("signature");
        for (const std::string* name : {&receipt.backbone, &receipt.payer, &receipt.node, &receipt.model}) {
            if (!is_plain_name(*name)) inner.fail("", "has a name that is empty or holds a control character");
        }
        LINKCPP_TRY(inner.status());
        receipts.push_back(std::move(signed_receipt));
    }
    LINKCPP_TRY(fields.status());
    return receipts;
}

}  // namespace linkcpp::hub
