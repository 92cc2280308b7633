#include "client/hub_api.h"

#include "base/hex.h"
#include "base/secret.h"
#include "client/swarm_json.h"

#include <fmt/format.h>

namespace linkcpp::client {

using nlohmann::json;

struct HubApi::Body {
    json value;
};

namespace {

constexpr std::chrono::seconds poll_grace{10};  // beyond what a long poll may take

Duration seconds(const json& value) { return std::chrono::seconds(std::min<uint64_t>(value.get<uint64_t>(), 86'400)); }

Code code_of(int status) {
    switch (status) {
        case 401: return Code::mismatch;
        case 403: return Code::unsupported;
        case 404:
        case 409: return Code::not_found;
        case 429: return Code::exhausted;
        default: return status >= 500 ? Code::unavailable : Code::invalid_argument;
    }
}

/// Runs `use`, which reads JSON, and turns what it throws into a Status.
template <typename T>
Result<T> read(const HubUrl& url, const std::function<T()>& use) {
    try {
        return use();
    } catch (const json::exception& error) {
        return {Code::corrupt, url.str() + ": an answer that this version does not understand (" + error.what() + ")"};
    }
}

}  // namespace

std::string Segment::str() const {
    return fmt::format("{}, layers {}:{}, experts {}:{}", model, layer_begin, layer_end, expert_begin, expert_end);
}

HubApi::HubApi(HubUrl url, HttpSettings settings, const SigningKey& key, std::optional<Bytes> join_token)
    : http_(std::move(url), std::move(settings)), key_(key), join_token_(std::move(join_token)) {}

Result<HttpAnswer> HubApi::ask(const char* method, const std::string& target, const std::string& body,
                               std::optional<Duration> silence_limit) {
    HttpRequest request{method, target, {}, body, silence_limit};
    if (!body.empty()) request.headers.emplace_back("Content-Type", "application/json");
    if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
    return http_.call(request);
}

/// The body of a good answer; of a bad one the error that the hub tells.
Status HubApi::parse(const Result<HttpAnswer>& answer, Body& body) {
    if (!answer.ok()) return answer.status();
    body.value = json::parse(answer->text, nullptr, false);
    if (answer->ok() && body.value.is_object()) return {};
    if (answer->ok()) return {Code::corrupt, http_.url().str() + ": what answers there is no hub"};
    std::string message = fmt::format("answer {}", answer->status);
    if (body.value.is_object() && body.value.contains("error")) {
        const auto& error = body.value["error"];
        if (error.is_object() && error.contains("message") && error["message"].is_string())
            message = error["message"].get<std::string>().substr(0, 500);
    }
    return {code_of(answer->status), http_.url().str() + ": " + message};
}

Result<Registration> HubApi::register_node(const std::optional<PublicKey>& pinned) {
    token_.clear();
    const std::string public_key = key_.public_key().hex();
    Body challenge, proven;
    LINKCPP_TRY(parse(ask("POST", "/api/nodes", json{{"public_key", public_key}}.dump()), challenge));
    RegistrationStatement statement{{}, key_.public_key(), ""};
    const auto nonce = read<std::string>(http_.url(), [&] { return challenge.value.at("nonce").get<std::string>(); });
    const auto hub = read<std::string>(http_.url(), [&] { return challenge.value.at("hub").get<std::string>(); });
    if (!nonce.ok() || !hub.ok()) return nonce.ok() ? hub.status() : nonce.status();
    const Result<PublicKey> hub_key = PublicKey::parse(*hub);
    if (!hub_key.ok() || !from_hex(*nonce)) return {Code::corrupt, http_.url().str() + ": a challenge that is none"};
    if (pinned && *pinned != *hub_key) {
        return {Code::unsupported,
                fmt::format("{} has the key {}, and not {}, which is remembered or was named: this is another hub, or "
                            "somebody is in between. If the hub was set up anew, start with another --data folder",
                            http_.url().str(), hub_key->hex(), pinned->hex())};
    }
    statement.hub = *hub_key;
    statement.nonce = *nonce;
    json proof = {{"public_key", public_key}, {"nonce", *nonce}, {"signature", to_hex(key_.sign(statement.bytes()))}};
    if (join_token_) proof["join_proof"] = hmac_sha256(*join_token_, statement.bytes()).hex();
    LINKCPP_TRY(parse(ask("POST", "/api/nodes", proof.dump()), proven));
    return read<Registration>(http_.url(), [&] {
        token_ = proven.value.at("token").get<std::string>();
        return Registration{proven.value.at("node"), *hub_key, seconds(proven.value.at("expires"))};
    });
}

Result<std::map<std::string, std::string>> HubApi::fingerprints() {
    Body body;
    LINKCPP_TRY(parse(ask("GET", "/api/proxy/models"), body));
    return read<std::map<std::string, std::string>>(http_.url(), [&] {
        std::map<std::string, std::string> models;
        for (const json& model : body.value.at("models"))
            models[model.at("name")] = model.at("fingerprint");
        return models;
    });
}

Result<std::vector<DemandSegment>> HubApi::demand() {
    Body body;
    LINKCPP_TRY(parse(ask("GET", "/api/expert-demand"), body));
    return read<std::vector<DemandSegment>>(http_.url(), [&] {
        std::vector<DemandSegment> segments;
        for (const json& model : body.value.at("models")) {
            for (const json& segment : model.at("segments")) {
                segments.push_back({segment_from(segment, model.at("model")), segment.at("replicas"),
                                    segment.at("target"), segment.at("scarcity"), segment.at("reward")});
            }
        }
        return segments;
    });
}

Result<Lease> HubApi::volunteer(const VolunteerOffer& offer) {
    json asked = json::object();
    if (offer.max_bytes != 0) asked["max_bytes"] = std::min(offer.max_bytes, uint64_t{1} << 53);
    if (offer.max_experts != 0) asked["max_experts"] = std::min(offer.max_experts, uint64_t{1} << 53);
    if (offer.instead_of) asked["instead_of"] = to_json(*offer.instead_of);
    Body body;
    LINKCPP_TRY(parse(ask("POST", "/api/expert-volunteer", asked.dump()), body));
    return read<Lease>(http_.url(), [&] {
        const json& value = body.value;
        Lease lease{value.at("lease"),    segment_from(value, value.at("model")),
                    value.at("url"),      value.at("bytes"),
                    value.at("reward"),   value.at("replicas"),
                    value.at("scarcity"), seconds(value.at("expires"))};
        return lease;
    });
}

Result<CoverageAnswer> HubApi::tell_coverage(const Coverage& coverage) {
    json holds = json::array(), progress = json::array();
    for (const Segment& what : coverage.holds)
        holds.push_back(to_json(what));
    for (const auto& [lease, bytes] : coverage.progress)
        progress.push_back({{"lease", lease}, {"bytes", bytes}});
    const json told = {
        {"holds", holds},        {"progress", progress},          {"address", coverage.address},
        {"load", coverage.load}, {"draining", coverage.draining}, {"numeric_class", coverage.numeric_class}};
    Body body;
    LINKCPP_TRY(parse(ask("POST", "/api/expert-coverage", told.dump()), body));
    return read<CoverageAnswer>(http_.url(), [&] {
        CoverageAnswer answer{seconds(body.value.at("stale_after")), body.value.at("lapsed"), {}};
        for (const json& held : body.value.at("holds"))
            answer.holds.push_back({held.at("reward"), held.at("replicas"), held.at("target")});
        return answer;
    });
}

Status HubApi::leave() {
    Body body;
    return parse(ask("DELETE", "/api/expert-coverage"), body);
}

Result<Placement> HubApi::placement(const std::string& model, std::optional<uint64_t> version, Duration wait) {
    std::string target = "/api/placement?model=" + model;
    std::optional<Duration> limit;
    if (version) {
        target += fmt::format("&version={}&wait={}", *version,
                              std::chrono::duration_cast<std::chrono::seconds>(wait).count());
        limit = wait + poll_grace;
    }
    Body body;
    LINKCPP_TRY(parse(ask("GET", target, "", limit), body));
    return read<Placement>(http_.url(), [&] { return placement_from(body.value); });
}

Result<std::vector<ReceiptAnswer>> HubApi::post_receipts(const std::vector<SignedReceipt>& receipts) {
    json list = json::array();
    for (const SignedReceipt& receipt : receipts)
        list.push_back(to_json(receipt));
    Body body;
    LINKCPP_TRY(parse(ask("POST", "/api/receipts", json{{"receipts", list}}.dump()), body));
    auto answers = read<std::vector<ReceiptAnswer>>(http_.url(), [&] {
        std::vector<ReceiptAnswer> all;
        for (const json& item : body.value.at("results")) {
            const auto result = item.at("result").get<std::string>();
            const bool recorded = result == "posted" || result == "duplicate";
            const bool may_be = result == "no_credit";
            all.push_back({item.at("id"),
                           recorded ? ReceiptAnswer::Fate::recorded
                           : may_be ? ReceiptAnswer::Fate::no_credit
                                    : ReceiptAnswer::Fate::refused,
                           item.value("reason", "")});
        }
        return all;
    });
    if (answers.ok() && answers->size() != receipts.size())
        return {Code::corrupt, http_.url().str() + ": an answer to other receipts than were sent"};
    return answers;
}

Result<Ledger> HubApi::ledger(const std::string& node, int64_t after) {
    Body body;
    LINKCPP_TRY(parse(ask("GET", fmt::format("/api/nodes/{}/ledger?after={}&limit=1000", node, after)), body));
    return read<Ledger>(http_.url(), [&] {
        Ledger ledger{body.value.at("balance"), {}};
        for (const json& entry : body.value.at("entries")) {
            ledger.entries.push_back({entry.at("number"), entry.at("amount"), entry.at("at"), entry.at("id"),
                                      entry.at("from"), entry.at("to"), entry.at("reason")});
        }
        return ledger;
    });
}

}  // namespace linkcpp::client
