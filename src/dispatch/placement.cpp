#include "dispatch/placement.h"

#include <tuple>

namespace linkcpp::dispatch {

std::vector<int> place(std::span<const uint32_t> experts, std::span<const Holder> holders) {
    std::vector<int> chosen(experts.size(), no_holder);
    std::vector<bool> used(holders.size(), false);
    for (size_t round = 0; round < holders.size(); ++round) {
        int best = no_holder;
        std::tuple<size_t, bool, Duration> best_rank{0, false, Duration::zero()};
        for (size_t h = 0; h < holders.size(); ++h) {
            if (used[h]) continue;
            size_t cover = 0;
            for (size_t e = 0; e < experts.size(); ++e) {
                if (chosen[e] == no_holder && experts[e] >= holders[h].expert_begin &&
                    experts[e] < holders[h].expert_end)
                    ++cover;
            }
            const std::tuple<size_t, bool, Duration> rank{cover, holders[h].same_class, -holders[h].expected};
            if (cover > 0 && (best == no_holder || rank > best_rank)) {
                best = static_cast<int>(h);
                best_rank = rank;
            }
        }
        if (best == no_holder) break;
        used[static_cast<size_t>(best)] = true;
        const Holder& holder = holders[static_cast<size_t>(best)];
        for (size_t e = 0; e < experts.size(); ++e) {
            if (chosen[e] == no_holder && experts[e] >= holder.expert_begin && experts[e] < holder.expert_end)
                chosen[e] = best;
        }
    }
    return chosen;
}

}  // namespace linkcpp::dispatch
