#include "hub/swarm.h"

#include "base/hex.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/threads.h"
#include "hub/market/reward.h"

#include <algorithm>

namespace linkcpp::hub {

namespace {

constexpr std::chrono::milliseconds look_around{500};  // how soon silence is noticed
constexpr uint64_t max_rows = uint64_t{1} << 50;       // of a receipt

/// A number that no earlier run of a hub has used, small enough for every JSON reader.
uint64_t fresh_version() { return uint64_t{from_little_endian<uint32_t>(random_bytes(4).data())} << 16; }

}  // namespace

market::Settings Swarm::market_settings() {
    market::Settings settings;
    settings.lease_prefix = to_hex(random_bytes(4));
    settings.first_version = fresh_version();
    settings.promised = [this](const std::string& node, const market::Holding& what) {
        const auto reward = store_.promised(node, what);
        return reward.ok() ? *reward : std::nullopt;
    };
    return settings;
}

Swarm::Swarm(const Clock& clock, Store& store, const PublicKey& hub, std::vector<market::ModelSpec> models,
             SwarmSettings settings)
    : settings_(std::move(settings)), clock_(clock), store_(store), identity_(clock, hub, settings_.identity),
      market_(clock, market_settings()) {
    for (market::ModelSpec& model : models)
        market_.add_model(std::move(model));
    thread_ = start_thread("lc-hub-market", [this] { run(); });
}

Swarm::~Swarm() { end_waiting(); }

void Swarm::end_waiting() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
}

Result<std::string> Swarm::enter(const RegistrationProof& proof) {
    Result<std::string> token = identity_.prove(proof);
    if (!token.ok()) return token;
    const std::string id = proof.node.fingerprint();
    LINKCPP_TRY(store_.put_node(id, proof.node));
    if (settings_.welcome_credits > 0) {
        const auto granted =
            store_.transfer({"welcome:" + id, operator_account, id, settings_.welcome_credits, "welcome"});
        if (!granted.ok()) return granted.status();
    }
    return token;
}

std::vector<std::string> Swarm::models() {
    const std::lock_guard lock(mutex_);
    return market_.models();
}

Result<std::vector<market::DemandSegment>> Swarm::demand(const std::string& model) {
    const std::lock_guard lock(mutex_);
    return market_.demand(model);
}

Result<market::Lease> Swarm::volunteer(const std::string& node, const market::VolunteerRequest& request) {
    const std::lock_guard lock(mutex_);
    auto lease = market_.volunteer(node, request);
    figures_.leases_given += lease.ok();
    return lease;
}

/// Has the waiting looked at if there is news; with the lock held.
void Swarm::wake_waiting() {
    if (!waiting_.empty() && market_.n_changes() != changes_told_) wake_.notify_all();
}

Result<market::HeartbeatAnswer> Swarm::heartbeat(const std::string& node, const market::Heartbeat& heartbeat) {
    Result<market::HeartbeatAnswer> answer(Code::unavailable, "");
    {
        const std::lock_guard lock(mutex_);
        answer = market_.heartbeat(node, heartbeat);
        figures_.heartbeats += 1;
        wake_waiting();
    }
    if (answer.ok()) keep_promises(node, heartbeat, *answer);
    return answer;
}

void Swarm::keep_promises(const std::string& node, const market::Heartbeat& heartbeat,
                          const market::HeartbeatAnswer& answer) {
    for (size_t i = 0; i < answer.holds.size(); ++i) {
        if (!answer.holds[i].fresh) continue;
        const Status kept = store_.promise(node, heartbeat.holds[i], answer.holds[i].reward);
        if (!kept.ok()) log_warning("a reward is not kept, it will be forgotten at a restart: {}", kept.message());
    }
}

bool Swarm::leave(const std::string& node) {
    const std::lock_guard lock(mutex_);
    const bool left = market_.leave(node);
    wake_waiting();
    return left;
}

Result<Placement> Swarm::placement_locked(const std::string& model) {
    auto holders = market_.placement(model);
    if (!holders.ok()) return holders.status();
    return Placement{market_.placement_version(model), std::move(*holders)};
}

Result<Placement> Swarm::placement(const std::string& model) {
    const std::lock_guard lock(mutex_);
    return placement_locked(model);
}

void Swarm::wait_for_placement(const std::string& model, uint64_t version, Duration limit,
                               std::function<void(Result<Placement>)> done) {
    Result<Placement> now(Code::unavailable, "");
    {
        const std::lock_guard lock(mutex_);
        if (market_.placement_version(model) == version && waiting_.size() < settings_.max_waiting && !stop_) {
            waiting_.push_back({model, version, clock_.now() + limit, std::move(done)});
            return;
        }
        now = placement_locked(model);
    }
    done(std::move(now));
}

/// What can be answered now; with the lock held.
std::vector<std::function<void()>> Swarm::take_ready() {
    std::vector<std::function<void()>> ready;
    const Instant now = clock_.now();
    const auto waits = [&](const Waiting& one) {
        return !stop_ && now < one.until && market_.placement_version(one.model) == one.version;
    };
    const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), waits);
    for (auto one = first; one != waiting_.end(); ++one) {
        ready.push_back([done = std::move(one->done), placement = placement_locked(one->model)] { done(placement); });
    }
    waiting_.erase(first, waiting_.end());
    return ready;
}

void Swarm::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        wake_.wait_for(lock, look_around, [this] { return stop_ || market_.n_changes() != changes_told_; });
        market_.sweep();
        changes_told_ = market_.n_changes();
        std::vector<std::function<void()>> ready = take_ready();
        const bool last = stop_;
        lock.unlock();
        for (const auto& answer : ready)
            answer();
        if (last) return;
        lock.lock();
    }
}

Status Swarm::check(const SignedReceipt& signed_receipt) {
    const Receipt& receipt = signed_receipt.receipt;
    if (receipt.rows == 0 || receipt.rows > max_rows) return {Code::invalid_argument, "rows is out of bounds"};
    if (receipt.period_begin > receipt.period_end) return {Code::invalid_argument, "the period is reversed"};
    if (receipt.payer != receipt.backbone)
        return {Code::invalid_argument, "a backbone can spend its own credits only: payer must be the backbone"};
    if (receipt.node == receipt.payer) return {Code::invalid_argument, "a node cannot pay itself"};
    const auto key = store_.node_key(receipt.backbone);
    if (!key.ok()) return key.status();
    if (!*key) return {Code::not_found, "the backbone is not registered here"};
    if (!verify_signature(**key, receipt.bytes(), signed_receipt.signature))
        return {Code::mismatch, "the signature is not the backbone's of this receipt"};
    return {};
}

/// By what the node was promised for the slice, whether it is still there or not.
Result<int64_t> Swarm::worth(const Receipt& receipt) {
    const market::Holding slice{receipt.model,
                                {{receipt.layer_begin, receipt.layer_end}, {receipt.expert_begin, receipt.expert_end}}};
    std::optional<uint64_t> reward;
    {
        const std::lock_guard lock(mutex_);
        reward = market_.reward(receipt.node, slice);
    }
    if (!reward) {
        const auto promised = store_.promised_for_part(receipt.node, slice);
        if (!promised.ok()) return promised.status();
        reward = *promised;
    }
    if (!reward) return {Code::not_found, "the node never said that it holds this slice"};
    int64_t credits = 0;
    if (!market::credits_for(receipt.rows, *reward, credits)) return {Code::invalid_argument, "more than can be paid"};
    return credits;
}

Result<std::vector<ReceiptResult>> Swarm::post(const std::vector<SignedReceipt>& receipts) {
    std::vector<ReceiptResult> results;
    std::vector<Store::Payment> payments;
    std::vector<size_t> where;
    const auto is_ours = [](const Status& status) {
        return status.code() == Code::io || status.code() == Code::exhausted || status.code() == Code::corrupt;
    };
    for (const SignedReceipt& receipt : receipts) {
        ReceiptResult result{receipt.receipt.id(), Posted::done, check(receipt)};
        if (result.refused.ok()) {
            const Result<int64_t> credits = worth(receipt.receipt);
            result.refused = credits.status();
            if (credits.ok()) {
                payments.push_back({receipt, *credits});
                where.push_back(results.size());
            }
        }
        if (is_ours(result.refused)) return result.refused;
        results.push_back(std::move(result));
    }
    const auto posted = store_.post(payments);
    if (!posted.ok()) return posted.status();
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < where.size(); ++i) {
        results[where[i]].posted = (*posted)[i];
        if ((*posted)[i] != Posted::done) continue;
        const Receipt& receipt = payments[i].signed_receipt.receipt;
        market_.note_rows(receipt.model, receipt.rows);
        figures_.receipts += 1;
        figures_.rows += receipt.rows;
    }
    return results;
}

Status Swarm::grant(const std::string& node, int64_t credits) {
    const std::string id = "grant:" + node + ":" + std::to_string(credits);
    return store_.transfer({id, operator_account, node, credits, "grant"}).status();
}

Swarm::Figures Swarm::figures() {
    const std::lock_guard lock(mutex_);
    Figures figures = figures_;
    figures.nodes = market_.n_nodes();
    figures.leases = market_.n_leases();
    figures.waiting = waiting_.size();
    return figures;
}

}  // namespace linkcpp::hub
