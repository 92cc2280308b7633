#include "client/roster.h"

#include "base/digest.h"
#include "base/secret.h"

#include <algorithm>
#include <tuple>

namespace linkcpp::client {

namespace {

/// Beyond any model. What a hub says beyond it is not looked at: the counts are 16 MB at most.
constexpr uint32_t max_experts = 1u << 12, max_layers = 1u << 10;

/// Counts how many workers were chosen for each expert.
class Counts {
  public:
    explicit Counts(uint32_t wanted) : wanted_(wanted) {}
    /// True when some expert of these has too few; then all of them have one more.
    bool take(const std::vector<Segment>& holds) {
        bool needed = false;
        for (const bool look : {true, false}) {
            if (!look && !needed) break;
            for (const Segment& what : holds) {
                for (uint32_t layer = what.layer_begin; layer < std::min(what.layer_end, max_layers); ++layer) {
                    std::vector<uint32_t>& counts = layers_[layer];
                    const uint32_t end = std::min(what.expert_end, max_experts);
                    if (counts.size() < end) counts.resize(end);
                    for (uint32_t e = what.expert_begin; e < end; ++e) {
                        needed |= counts[e] < wanted_;
                        if (!look) counts[e] += 1;
                    }
                }
            }
        }
        return needed;
    }

  private:
    const uint32_t wanted_;
    std::map<uint32_t, std::vector<uint32_t>> layers_;
};

}  // namespace

void Roster::update(const Placement& placement, Instant now) {
    using Rank = std::tuple<bool, bool, Digest>;
    std::vector<std::pair<Rank, const PlacementHolder*>> ranked;
    for (const PlacementHolder& holder : placement.holders) {
        if (holder.address.empty() || holder.holds.empty()) continue;
        const Rank rank{!members_.contains(holder.address), holder.numeric_class != settings_.numeric_class,
                        sha256(bytes_of_text(settings_.self + " " + holder.node))};
        ranked.emplace_back(rank, &holder);
    }
    std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });

    std::map<std::string, std::string> members;
    std::map<std::string, bool> seen;
    Counts counts(settings_.replicas);
    for (const auto& [rank, holder] : ranked) {
        const bool again = !seen.emplace(holder->address, true).second;
        if (again) {
            if (const auto member = members.find(holder->address); member != members.end()) member->second.clear();
            continue;
        }
        if (counts.take(holder->holds)) members.emplace(holder->address, holder->node);
    }
    if (now < grace_until_) {
        for (const auto& [address, node] : members_) {
            if (!seen.contains(address)) members.emplace(address, node);
        }
    }
    members_ = std::move(members);
}

}  // namespace linkcpp::client
