#include "dispatch/placement.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace linkcpp::dispatch {

namespace {

bool has(const Holder& holder, uint32_t expert) { return expert >= holder.expert_begin && expert < holder.expert_end; }

/// A worker's claim to what is not placed yet; the largest wins.
using Rank = std::tuple<size_t, bool, int, Duration>;

class Placement {
  public:
    Placement(std::span<const uint32_t> experts, std::span<const Holder> holders)
        : experts_(experts), holders_(holders), chosen_(experts.size(), no_holder) {}

    std::vector<int> run() {
        std::set<uint32_t> workers;
        for (const Holder& holder : holders_)
            workers.insert(holder.peer);
        while (!workers.empty()) {
            auto best = workers.end();
            Rank best_rank;
            for (auto worker = workers.begin(); worker != workers.end(); ++worker) {
                const Rank rank = rank_of(*worker);
                if (std::get<size_t>(rank) == 0 || (best != workers.end() && rank <= best_rank)) continue;
                best = worker;
                best_rank = rank;
            }
            if (best == workers.end()) break;
            give_all(*best);
            workers.erase(best);
        }
        return std::move(chosen_);
    }

  private:
    size_t cover(const Holder& holder) const {
        size_t n = 0;
        for (size_t e = 0; e < experts_.size(); ++e)
            n += chosen_[e] == no_holder && has(holder, experts_[e]);
        return n;
    }
    Rank rank_of(uint32_t worker) const {
        std::vector<const Holder*> slices;
        for (const Holder& holder : holders_) {
            if (holder.peer == worker && cover(holder) > 0) slices.push_back(&holder);
        }
        if (slices.empty()) return {};
        size_t n = 0;
        for (size_t e = 0; e < experts_.size(); ++e) {
            const auto has_it = [&](const Holder* slice) { return has(*slice, experts_[e]); };
            n += chosen_[e] == no_holder && std::any_of(slices.begin(), slices.end(), has_it);
        }
        return {n, slices.front()->same_class, -static_cast<int>(slices.size()), -slices.front()->expected};
    }
    /// Everything that a worker has goes there, in as few of its slices as a greedy choice finds.
    void give_all(uint32_t worker) {
        for (;;) {
            int best = no_holder;
            size_t most = 0;
            for (size_t h = 0; h < holders_.size(); ++h) {
                const size_t n = holders_[h].peer == worker ? cover(holders_[h]) : 0;
                if (n > most) best = static_cast<int>(h);
                most = std::max(most, n);
            }
            if (best == no_holder) return;
            for (size_t e = 0; e < experts_.size(); ++e) {
                if (chosen_[e] == no_holder && has(holders_[static_cast<size_t>(best)], experts_[e])) chosen_[e] = best;
            }
        }
    }

    std::span<const uint32_t> experts_;
    std::span<const Holder> holders_;
    std::vector<int> chosen_;
};

}  // namespace

std::vector<int> place(std::span<const uint32_t> experts, std::span<const Holder> holders) {
    return Placement(experts, holders).run();
}

}  // namespace linkcpp::dispatch
