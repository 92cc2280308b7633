#pragma once
// What a node says to a hub, and hears, in this project's types (docs/MARKET.md, docs/openapi.yaml). JSON stays inside.
// Blocks while the hub answers; one thread. Tokens are kept in memory only.
//
// Errors of all calls: unavailable or timeout (no hub, or it cannot now; try again later), mismatch (not registered, or no
// longer: register and ask again), unsupported (this hub does not want us), not_found (nothing there for us),
// exhausted (too much at once), invalid_argument (the hub does not understand us), corrupt (we do not understand it).

#include "base/signing_key.h"
#include "base/statements.h"
#include "client/http_client.h"

#include <map>

namespace linkcpp::client {

/// Experts [experts_begin, experts_end) of layers [layer_begin, layer_end) of a model, by its name at the hub.
struct Segment {
    std::string model;
    uint32_t layer_begin = 0, layer_end = 0, expert_begin = 0, expert_end = 0;
    auto operator<=>(const Segment&) const = default;
    std::string str() const;  ///< "qwen, layers 0:1, experts 128:192"
};

struct DemandSegment {
    Segment what;
    uint32_t replicas = 0, target = 0;
    double scarcity = 0;
    uint64_t reward = 0;
};

struct Lease {
    std::string id;
    Segment what;
    std::string target;  ///< of the download, "/api/…"
    uint64_t bytes = 0, reward = 0;
    uint32_t replicas = 0;
    double scarcity = 0;
    Duration expires{0};
};

struct VolunteerOffer {
    uint64_t max_bytes = 0, max_experts = 0;  ///< 0: no limit; one of them must be given
    std::optional<Segment> instead_of;
};

struct Coverage {
    std::vector<Segment> holds;
    std::string address, numeric_class;
    double load = 0;
    bool draining = false;
    std::map<std::string, uint64_t> progress;  ///< bytes by lease
};

struct CoverageAnswer {
    Duration stale_after{0};
    std::vector<std::string> lapsed;  ///< leases that are none any more
    struct Held {
        uint64_t reward = 0;
        uint32_t replicas = 0, target = 0;
    };
    std::vector<Held> holds;
};

struct Registration {
    std::string node;
    PublicKey hub;
    Duration expires{0};
};

struct LedgerEntry {
    int64_t number = 0, amount = 0, at = 0;
    std::string id, from, to, reason;
};
struct Ledger {
    int64_t balance = 0;
    std::vector<LedgerEntry> entries;
};

struct PlacementHolder {
    std::string node, address, numeric_class;
    std::vector<Segment> holds;
};
/// Who serves what of a model.
struct Placement {
    std::string model;
    uint64_t version = 0;
    std::vector<PlacementHolder> holders;
};

struct SignedReceipt {
    Receipt receipt;
    Signature signature{};
};
struct ReceiptAnswer {
    enum class Fate {
        recorded,   ///< now, or at an earlier try
        no_credit,  ///< not recorded, as the payer's balance does not cover it; it may later
        refused     ///< it never will be
    };
    std::string id;
    Fate fate = Fate::refused;
    std::string reason;
};

class HubApi {
  public:
    /// `key` outlives it. `join_token`: of a private swarm.
    HubApi(HubUrl url, HttpSettings settings, const SigningKey& key, std::optional<Bytes> join_token);

    /// Proves the key, gets a token. `pinned`: the hub's key, when it is known; another one is `unsupported`.
    Result<Registration> register_node(const std::optional<PublicKey>& pinned);
    /// Fingerprints (SHA-256, hexadecimal) of the models there, by name.
    Result<std::map<std::string, std::string>> fingerprints();
    Result<std::vector<DemandSegment>> demand();
    Result<Lease> volunteer(const VolunteerOffer& offer);
    Result<CoverageAnswer> tell_coverage(const Coverage& coverage);
    Status leave();
    /// At once; with a version, when the hub has another one, or after `wait` (whole seconds, at most a minute).
    Result<Placement> placement(const std::string& model, std::optional<uint64_t> version, Duration wait);
    /// At most 100. The answers are in the same order.
    Result<std::vector<ReceiptAnswer>> post_receipts(const std::vector<SignedReceipt>& receipts);
    Result<Ledger> ledger(const std::string& node, int64_t after);

  private:
    struct Body;
    Result<HttpAnswer> ask(const char* method, const std::string& target, const std::string& body = "",
                           std::optional<Duration> silence_limit = {});
    Status parse(const Result<HttpAnswer>& answer, Body& body);

    HttpClient http_;
    const SigningKey& key_;
    const std::optional<Bytes> join_token_;
    std::string token_;
};

}  // namespace linkcpp::client
