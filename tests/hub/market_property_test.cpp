// What holds for any sequence of joins, leaves and budgets, in virtual time. A round is what every node does once: it tells
// what it holds, and asks for more if it has room, or else for something better than what it has. Once joins and leaves
// stop and those who left have been noticed, three rounds are enough.
#include "hub/market_rig.h"

#include <algorithm>

namespace linkcpp::hub::market {
namespace {

constexpr int rounds_enough = 3;

class Swarm {
  public:
    Swarm(std::vector<ModelSpec> models, uint32_t seed) : random(seed), market(clock, {}), specs(std::move(models)) {
        for (const ModelSpec& spec : specs)
            market.add_model(spec);
    }

    struct Node {
        std::string name;
        uint64_t budget = 0;  // bytes
        std::vector<Holding> holds;
        uint64_t room() const { return budget - used; }
        uint64_t used = 0;
    };

    uint64_t bytes(const Holding& what) const {
        for (const ModelSpec& spec : specs) {
            if (spec.name == what.model) return ModelMap(spec).bytes(what.block);
        }
        return 0;
    }
    void tell(Node& node) { ASSERT_TRUE(market.heartbeat(node.name, serving(node.holds)).ok()); }

    void fill(Node& node) {
        while (node.room() > 0) {
            const auto lease = market.volunteer(node.name, up_to_bytes(node.room()));
            if (!lease.ok()) return;
            ASSERT_LE(bytes(lease->what), node.room()) << "a lease that does not fit the budget";
            node.holds.push_back(lease->what);
            node.used += bytes(lease->what);
            tell(node);
        }
    }
    void move(Node& node) {
        for (size_t i = 0; i < node.holds.size(); ++i) {
            VolunteerRequest request = up_to_bytes(node.room() + bytes(node.holds[i]));
            request.instead_of = node.holds[i];
            const auto lease = market.volunteer(node.name, request);
            if (!lease.ok()) continue;
            node.used += bytes(lease->what) - bytes(node.holds[i]);
            node.holds[i] = lease->what;
            tell(node);
            n_moves += 1;
        }
    }
    void round() {
        std::shuffle(nodes.begin(), nodes.end(), random.engine);
        for (Node& node : nodes)
            tell(node);
        for (Node& node : nodes) {
            fill(node);
            move(node);
        }
        clock.time += 5s;
    }
    void join(uint64_t budget) { nodes.push_back({numbered("n", ++last), budget, {}, 0}); }
    void crash() {
        if (!nodes.empty()) nodes.erase(nodes.begin() + random.below(static_cast<uint32_t>(nodes.size())));
    }
    /// Crashed nodes are off the map after this; the others stay.
    void notice() {
        for (int i = 0; i < 4; ++i) {
            clock.time += 5s;
            for (Node& node : nodes)
                tell(node);
        }
    }

    /// Replicas as the nodes that live have them: the map must agree with it.
    std::map<std::pair<std::string, uint32_t>, std::vector<uint32_t>> truth() const {
        std::map<std::pair<std::string, uint32_t>, std::vector<uint32_t>> counts;
        for (const ModelSpec& spec : specs) {
            for (uint32_t layer = 0; layer < spec.layers.size(); ++layer)
                counts[{spec.name, layer}].resize(spec.layers[layer].n_expert);
        }
        for (const Node& node : nodes) {
            for (const auto& [model, block] : node.holds) {
                for (uint32_t layer = block.layers.begin; layer < block.layers.end; ++layer) {
                    std::vector<uint32_t>& experts = counts[{model, layer}];
                    for (uint32_t e = block.experts.begin; !experts.empty() && e < block.experts.end; ++e)
                        experts[e] += 1;
                }
            }
        }
        return counts;
    }
    void check_map() {
        const auto counts = truth();
        for (const ModelSpec& spec : specs) {
            const auto segments = market.demand(spec.name);
            ASSERT_TRUE(segments.ok());
            std::map<uint32_t, uint32_t> reached;
            for (const DemandSegment& segment : *segments) {
                ASSERT_EQ(segment.experts.begin, reached[segment.layer]) << "segments leave nothing out";
                reached[segment.layer] = segment.experts.end;
                for (uint32_t e = segment.experts.begin; e < segment.experts.end; ++e)
                    ASSERT_EQ(segment.replicas, counts.at({spec.name, segment.layer})[e]);
            }
            for (uint32_t layer = 0; layer < spec.layers.size(); ++layer)
                ASSERT_EQ(reached[layer], spec.layers[layer].n_expert);
        }
    }
    /// An expert without holder while a node that lives has room for it, or holds something that two others have as well.
    void check_covered() {
        const auto counts = truth();
        for (const auto& [where, experts] : counts) {
            if (std::find(experts.begin(), experts.end(), 0u) == experts.end()) continue;
            uint64_t size = 0;
            for (const ModelSpec& spec : specs) {
                if (spec.name == where.first) size = spec.layers[where.second].expert_bytes;
            }
            for (const Node& node : nodes) {
                ASSERT_LT(node.room(), size) << node.name << " has room for layer " << where.second;
                for (const Holding& what : node.holds) {
                    uint32_t fewest = UINT32_MAX;
                    for (uint32_t layer = what.block.layers.begin; layer < what.block.layers.end; ++layer) {
                        const auto& held = counts.at({what.model, layer});
                        for (uint32_t e = what.block.experts.begin; !held.empty() && e < what.block.experts.end; ++e)
                            fewest = std::min(fewest, held[e]);
                    }
                    ASSERT_TRUE(fewest < 2 || node.room() + bytes(what) < size)
                        << node.name << " should have moved to layer " << where.second;
                }
            }
        }
    }

    Random random;
    ManualClock clock;
    Market market;
    std::vector<ModelSpec> specs;
    std::vector<Node> nodes;
    uint64_t last = 0;
    int n_moves = 0;
};

void churn(Swarm& swarm, int steps, const std::function<uint64_t()>& budget) {
    for (int step = 0; step < steps; ++step) {
        if (swarm.random.below(5) < 3) {
            swarm.join(budget());
        } else {
            swarm.crash();
        }
        if (swarm.random.below(3) == 0) swarm.round();
    }
    swarm.notice();
    for (int round = 0; round < rounds_enough; ++round)
        swarm.round();
}

TEST(MarketProperty, NoExpertIsWithoutHolderWhileSomebodyHasRoom) {
    for (uint32_t seed = 1; seed <= 150; ++seed) {
        Random random(seed);
        std::vector<ModelSpec> models;
        const uint32_t n_models = 1 + random.below(3);
        for (uint32_t m = 0; m < n_models; ++m) {
            ModelSpec spec{numbered("m", m), {}, 1 + random.below(3)};
            const uint32_t n_layers = 1 + random.below(6);
            for (uint32_t l = 0; l < n_layers; ++l) {
                const uint32_t n_expert = random.below(4) == 0 ? 0 : 1 + random.below(40);
                spec.layers.push_back({n_expert, 1 + random.below(3)});
            }
            models.push_back(spec);
        }
        Swarm swarm(models, seed);
        churn(swarm, 60, [&] { return 1 + swarm.random.below(60); });
        SCOPED_TRACE("seed " + std::to_string(seed));
        swarm.check_map();
        swarm.check_covered();
        if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(MarketProperty, WithEqualBudgetsReplicasDifferByOneAtMost) {
    int n_moves = 0;
    for (uint32_t seed = 1; seed <= 150; ++seed) {
        Random random(seed);
        const uint32_t budget = 1 + random.below(16), n_layers = 1 + random.below(6);
        std::vector<ModelSpec> models;
        for (uint32_t m = 0; m < 1 + seed % 2; ++m)
            models.push_back(even_model(numbered("m", m), n_layers, budget * (1 + random.below(4)), 1));
        Swarm swarm(models, seed);
        churn(swarm, 100, [&] { return budget; });
        SCOPED_TRACE("seed " + std::to_string(seed));
        swarm.check_map();
        uint32_t least = UINT32_MAX, most = 0;
        for (const auto& [where, experts] : swarm.truth()) {
            least = std::min(least, *std::min_element(experts.begin(), experts.end()));
            most = std::max(most, *std::max_element(experts.begin(), experts.end()));
        }
        ASSERT_LE(most - least, 1u);
        const int before = swarm.n_moves;
        swarm.round();
        ASSERT_EQ(swarm.n_moves, before) << "an even map is left alone";
        n_moves += before;
    }
    EXPECT_GT(n_moves, 100) << "the test must see imbalance";
}

}  // namespace
}  // namespace linkcpp::hub::market
