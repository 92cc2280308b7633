// Audits: a share of the answers is computed again, here or by another worker, because a worker whose numbers are finite
// and wrong shows in no other way. docs/ARCHITECTURE.md ("Audits") says what that promises and what it does not.

#include "base/log.h"
#include "dispatch/compare.h"
#include "dispatch/dispatcher.h"

#include <cmath>
#include <fmt/format.h>

namespace linkcpp::dispatch {

/// The first answer of each connection is checked before it is used, and every so manieth after its use; with a share of
/// 1 all of them before.
Dispatcher::Audit Dispatcher::audit_wanted(uint32_t peer, size_t n_pairs) {
    if (settings_.audit_share <= 0) return Audit::none;
    if (settings_.audit_share >= 1) return Audit::before_use;
    AuditCount& count = audited_[peer];
    if (count.connection != peers_[peer]->connection()) count = {peers_[peer]->connection(), 0};
    const auto every = static_cast<uint64_t>(std::ceil(1 / settings_.audit_share));
    const uint64_t n = count.n_answers;
    // One that is too large, or that comes while another one is checked, leaves its turn to the next.
    const bool is_turn = n % every == 0;
    const bool possible = n_pairs <= settings_.max_audit_pairs && (n == 0 || checks_.empty());
    if (!is_turn || possible) count.n_answers += 1;
    if (!is_turn || !possible) return Audit::none;
    return n == 0 ? Audit::before_use : Audit::after_use;
}

/// False: there is nobody to compare with.
bool Dispatcher::start_check(const Running& running, Check check) {
    const ExpertJob& job = running.job;
    const bool here = check_ != nullptr && check_->can_audit();
    const auto place = here ? std::nullopt : replica(running, check.plan, check.peer, true);
    if (!here && !place) return false;
    totals_.audits += 1;
    const uint32_t expert_begin = here ? 0 : peers_[place->peer]->offers()[place->offer].expert_begin;
    RequestPlan again = plan_request(job, check.plan.pairs, expert_begin, settings_.split);
    if (here) {
        AuditRequest request{job.layer, job.program, compute_of(job, std::move(again)), check.rows,
                             tolerance(peers_[check.peer]->numeric_class(), settings_.numeric_class, Depth::program)};
        const uint64_t id = next_id_++;
        checks_.emplace(id, std::move(check));
        check_->audit(std::move(request), [this, id, alive = alive_, &loop = network_.loop()](const Status& verdict) {
            loop.post([this, id, alive, verdict] {
                if (!*alive || !checks_.contains(id)) return;
                check_done(std::move(checks_.extract(id).mapped()), verdict);
            });
        });
        return true;
    }
    check.replica = place->peer;
    checks_.emplace(next_id_, std::move(check));
    send_frame(running, *place, frame_of(job, again));
    return true;
}

void Dispatcher::check_by_replica(uint64_t id, const Status& answered, std::span<const float> rows) {
    Check check = std::move(checks_.extract(id).mapped());
    const Peer &peer = *peers_[check.peer], &other = *peers_[*check.replica];
    const double allowed = tolerance(peer.numeric_class(), other.numeric_class(), Depth::program);
    const Status verdict = answered.ok() ? compare_rows(rows, check.rows, check.n_out, allowed)
                                         : Status(Code::unavailable, answered.message());
    // Later: a peer is on the stack, and it may have to go.
    network_.loop().post([this, alive = alive_, check = std::move(check), verdict]() mutable {
        if (*alive) check_done(std::move(check), verdict);
    });
}

void Dispatcher::check_done(Check check, const Status& verdict) {
    const auto job = jobs_.find(check.job);
    if (verdict.code() == Code::mismatch || verdict.code() == Code::corrupt) {
        totals_.audits_failed += 1;
        const uint64_t id = check.job;
        const auto pairs = check.plan.pairs;
        distrust(check, verdict);
        if (id != 0) ask_again(id, pairs, check.peer, verdict);
        return;
    }
    const bool believed = verdict.ok() || settings_.audit_share < 1;
    if (believed && (check.job == 0 || job != jobs_.end())) accept(check.peer, check.slice, check.plan.pairs.size());
    if (job == jobs_.end()) return;
    if (believed) return use(check.job, check.plan, check.rows);
    // Every answer was to be checked. Another replica may still do it.
    if (check.replica && start_check(job->second, check)) return;
    finish(check.job,
           {Code::unavailable, fmt::format("layer {}: the answer of worker {} cannot be audited, and every "
                                           "answer is to be: {}",
                                           check.layer, peers_[check.peer]->address().str(), verdict.message())});
}

/// Wrong numbers. Where they were compared with a worker's, nobody knows which of the two is wrong: neither is used.
void Dispatcher::distrust(const Check& check, const Status& verdict) {
    Peer& peer = *peers_[check.peer];
    std::erase_if(accepted_, [&](const auto& entry) {
        return entry.first.first == check.peer || (check.replica && entry.first.first == *check.replica);
    });
    const std::string with = check.replica ? "worker " + peers_[*check.replica]->address().str() : "local weights";
    const Status reason(Code::mismatch,
                        fmt::format("layer {}, audited with {}: {}", check.layer, with, verdict.message()));
    if (check.job == 0) {
        const Status wrong(Code::corrupt,
                           fmt::format("worker {} computed wrong numbers that were used already ({}); what was decoded "
                                       "with it cannot be trusted, decode it again",
                                       peer.address().str(), reason.message()));
        log_error("{}", wrong.message());
        std::vector<uint64_t> running;
        for (const auto& [id, job] : jobs_)
            running.push_back(id);
        if (running.empty()) distrust_ = wrong;
        for (uint64_t id : running)
            finish(id, wrong);
    }
    if (peer.connection() == check.connection) peer.quarantine(reason);
    if (check.replica && peers_[*check.replica]->ready()) {
        peers_[*check.replica]->quarantine(
            {Code::mismatch, fmt::format("layer {}: it and worker {} disagree: {}", check.layer, peer.address().str(),
                                         verdict.message())});
    }
}

void Dispatcher::drop_checks(uint64_t job) {
    for (auto check = checks_.begin(); check != checks_.end();) {
        if (check->second.job != job) {
            ++check;
            continue;
        }
        if (check->second.replica) peers_[*check->second.replica]->forget(check->first);
        check = checks_.erase(check);
    }
}

}  // namespace linkcpp::dispatch
