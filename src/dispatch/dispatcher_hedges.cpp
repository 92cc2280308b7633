// Hedging: a request that takes longer than is usual for its worker is asked of a second one too, and the first complete
// answer counts. Only workers of the same numeric class, so that it does not matter which one that is.

#include "dispatch/dispatcher.h"

#include <algorithm>

namespace linkcpp::dispatch {

namespace {
constexpr Duration hedge_tolerance = 100us;
}

/// Where else a request can be computed: the worker with the best expected time; one of the same class comes first.
std::optional<Dispatcher::Place> Dispatcher::replica(const Running& running, const RequestPlan& plan, uint32_t peer,
                                                     bool any_class) const {
    const ExpertJob& job = running.job;
    uint32_t first = UINT32_MAX, last = 0;
    for (uint32_t pair : plan.pairs) {
        const auto expert = static_cast<uint32_t>(job.expert[pair]);
        first = std::min(first, expert);
        last = std::max(last, expert);
    }
    const std::string& numeric_class = peers_[peer]->numeric_class();
    std::optional<Place> best;
    std::pair<bool, Duration> best_rank;
    for (uint32_t p = 0; p < peers_.size(); ++p) {
        const Peer& other = *peers_[p];
        const bool same = !numeric_class.empty() && other.numeric_class() == numeric_class;
        if (p == peer || !other.ready() || running.unable.contains(p) || (!same && !any_class)) continue;
        for (uint32_t o = 0; o < other.offers().size(); ++o) {
            const wire::SliceOffer& offer = other.offers()[o];
            if (job.layer < offer.layer_begin || job.layer >= offer.layer_end || first < offer.expert_begin ||
                last >= offer.expert_end)
                continue;
            const std::pair<bool, Duration> rank{!same, other.expected()};
            if (best && best_rank <= rank) continue;
            best = {p, o};
            best_rank = rank;
        }
    }
    return best;
}

/// Looks at a request again when it is late.
void Dispatcher::watch(uint64_t id) {
    const auto found = parts_.find(id);
    if (found == parts_.end() || settings_.hedge_share <= 0 || peers_.size() < 2) return;
    Part& part = found->second;
    const Duration usual = peers_[part.peer]->usual(part.plan.pairs.size());
    if (usual == Duration::zero()) return;
    // Just as long as usual is not late: an answer that arrives in this moment is handled first.
    part.late =
        network_.loop().after(std::max(usual, settings_.hedge_min) + hedge_tolerance, [this, id, alive = alive_] {
            if (*alive) hedge(id);
        });
}

void Dispatcher::hedge(uint64_t id) {
    const auto found = parts_.find(id);
    if (found == parts_.end() || found->second.twin != 0) return;
    const auto job = jobs_.find(found->second.job);
    if (job == jobs_.end()) return;
    const auto place = replica(job->second, found->second.plan, found->second.peer, false);
    if (!place || job->second.busy.contains(place->peer) || !hedges_.spend()) return;
    totals_.hedges += 1;
    Part twin{found->second.job, place->peer,
              plan_request(job->second.job, found->second.plan.pairs,
                           peers_[place->peer]->offers()[place->offer].expert_begin, settings_.split)};
    twin.twin = id;
    twin.slice = slice_of(*place);
    found->second.twin = next_id_;
    wire::ComputeFrame frame = frame_of(job->second.job, twin.plan);
    twin.plan.compute = {};
    parts_.emplace(next_id_, std::move(twin));
    send_frame(job->second, *place, std::move(frame));
}

/// The loser of two is not waited for; its answer will be late and dropped.
void Dispatcher::end_race(uint64_t id, const Part& winner) {
    const auto loser = parts_.find(winner.twin);
    if (loser == parts_.end()) return;
    if (id > loser->first) totals_.hedges_won += 1;
    peers_[loser->second.peer]->lost_race(loser->first);
    drop(loser);
}

}  // namespace linkcpp::dispatch
