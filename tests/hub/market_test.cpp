// What the market answers, case by case.
#include "hub/market/reward.h"
#include "hub/market_rig.h"

namespace linkcpp::hub::market {
namespace {

class MarketTest : public testing::Test {
  protected:
    MarketTest() : market(clock, settings()) {}
    Settings settings() {
        Settings made;
        made.promised = [this](const std::string& node, const Holding& what) -> std::optional<uint64_t> {
            const auto found = promised.find({node, what});
            return found == promised.end() ? std::nullopt : std::optional(found->second);
        };
        return made;
    }
    HeartbeatAnswer beat(const std::string& node, const Heartbeat& heartbeat) {
        const auto answer = market.heartbeat(node, heartbeat);
        EXPECT_TRUE(answer.ok()) << answer.status().message();
        return answer.ok() ? *answer : HeartbeatAnswer{};
    }
    Lease lease(const std::string& node, const VolunteerRequest& request) {
        const auto given = market.volunteer(node, request);
        EXPECT_TRUE(given.ok()) << given.status().message();
        return given.ok() ? *given : Lease{};
    }
    uint32_t replicas(const std::string& model, uint32_t layer, uint32_t expert) {
        const auto segments = market.demand(model);
        EXPECT_TRUE(segments.ok());
        for (const DemandSegment& segment : *segments) {
            if (segment.layer == layer && segment.experts.begin <= expert && expert < segment.experts.end)
                return segment.replicas;
        }
        ADD_FAILURE() << "no segment has expert " << expert;
        return 0;
    }

    ManualClock clock;
    std::map<std::pair<std::string, Holding>, uint64_t> promised;
    Market market;
};

TEST_F(MarketTest, TheWorkedExample) {
    market.add_model(even_model("m", 1, 256));
    beat("A", serving({part("m", {0, 1}, {0, 128})}));
    beat("B", serving({part("m", {0, 1}, {128, 256})}));
    beat("C", serving({part("m", {0, 1}, {0, 128})}));
    const auto segments = market.demand("m");
    ASSERT_TRUE(segments.ok());
    ASSERT_EQ(segments->size(), 2u);
    const DemandSegment &full = (*segments)[0], &scarce = (*segments)[1];
    EXPECT_EQ(full.experts, (Range{0, 128}));
    EXPECT_EQ(full.replicas, 2u);
    EXPECT_EQ(full.scarcity, 0.0);
    EXPECT_EQ(scarce.experts, (Range{128, 256}));
    EXPECT_EQ(scarce.replicas, 1u);
    EXPECT_EQ(scarce.scarcity, 0.5);
    EXPECT_GT(scarce.reward, full.reward);

    const Lease given = lease("D", up_to_experts(64));
    EXPECT_EQ(given.what, part("m", {0, 1}, {128, 192}));
    EXPECT_EQ(given.replicas, 1u);
    EXPECT_EQ(given.target, 2u);
    EXPECT_EQ(given.scarcity, 0.5);
    EXPECT_EQ(given.reward, scarce.reward);
}

TEST_F(MarketTest, ManyVolunteersAtOnceAreSpread) {
    market.add_model(even_model("m", 2, 256));
    std::map<uint32_t, int> begins;
    for (uint32_t i = 0; i < 16; ++i)
        begins[lease(numbered("n", i), up_to_experts(64)).what.block.experts.begin] += 1;
    EXPECT_EQ(begins, (std::map<uint32_t, int>{{0, 4}, {64, 4}, {128, 4}, {192, 4}}));
    EXPECT_EQ(replicas("m", 0, 0), 2u);
    EXPECT_EQ(replicas("m", 1, 255), 2u);
}

TEST_F(MarketTest, ALeaseLapsesWithoutProgressAndIsKeptByIt) {
    market.add_model(even_model("m", 1, 8, 100'000'000));
    const Lease given = lease("A", up_to_experts(8));
    EXPECT_EQ(given.expires, clock.now() + 60s);
    EXPECT_EQ(replicas("m", 0, 0), 1u);
    // Twenty minutes of download, told every five seconds.
    for (uint64_t done = 1; done <= 240; ++done) {
        clock.time += 5s;
        Heartbeat heartbeat;
        heartbeat.progress = {{given.id, done * 3'000'000}};
        const HeartbeatAnswer answer = beat("A", heartbeat);
        ASSERT_EQ(answer.leases.size(), 1u) << "after " << done;
        EXPECT_TRUE(answer.unknown.empty());
    }
    EXPECT_EQ(replicas("m", 0, 0), 1u);
    // Heartbeats that tell of no further progress do not keep it.
    for (int i = 0; i < 12; ++i) {
        clock.time += 5s;
        Heartbeat heartbeat;
        heartbeat.progress = {{given.id, 720'000'000}};
        beat("A", heartbeat);
    }
    EXPECT_EQ(replicas("m", 0, 0), 0u);
    Heartbeat late;
    late.progress = {{given.id, 730'000'000}};
    EXPECT_EQ(beat("A", late).unknown, std::vector<std::string>{given.id});
}

TEST_F(MarketTest, AByteNowAndThenDoesNotKeepALeaseForEver) {
    market.add_model(even_model("m", 1, 8, 1 << 20));
    const Lease given = lease("A", up_to_experts(8));
    EXPECT_EQ(given.ends, clock.now() + 60s + 64s);  // 8 MiB at 128 KiB/s
    size_t open = 1;
    for (uint64_t bytes = 1; open == 1 && bytes < 100; ++bytes) {
        clock.time += 10s;
        Heartbeat heartbeat;
        heartbeat.progress = {{given.id, bytes}};
        open = beat("A", heartbeat).leases.size();
    }
    EXPECT_EQ(clock.now(), 130s);
}

TEST_F(MarketTest, WhatIsHeldFulfilsItsLeaseAndKeepsItsReward) {
    market.add_model(even_model("m", 1, 256));
    const Lease given = lease("A", up_to_experts(64));
    EXPECT_EQ(replicas("m", 0, 0), 1u);
    beat("A", serving({given.what}));
    EXPECT_EQ(market.n_leases(), 0u);
    EXPECT_EQ(replicas("m", 0, 0), 1u) << "coming became live, once";
    for (const char* other : {"B", "C", "D"})
        beat(other, serving({given.what}));
    EXPECT_EQ(market.reward("A", part("m", {0, 1}, {3, 5})), given.reward);
    EXPECT_LT(*market.reward("B", given.what), given.reward) << "nobody had asked for B's copy";
    EXPECT_EQ(market.reward("A", part("m", {0, 1}, {60, 65})), std::nullopt);
    EXPECT_EQ(market.reward("nobody", given.what), std::nullopt);
}

TEST_F(MarketTest, APromiseOutlivesTheHub) {
    market.add_model(even_model("m", 1, 256));
    const Holding what = part("m", {0, 1}, {0, 64});
    promised[{"A", what}] = 4321;
    beat("A", serving({what}));
    EXPECT_EQ(market.reward("A", what), 4321u);
}

TEST_F(MarketTest, WhoFallsSilentIsOffTheMapAfterFifteenSeconds) {
    market.add_model(even_model("m", 1, 8));
    beat("A", serving({part("m", {0, 1}, {0, 8})}));
    const uint64_t version = market.placement_version("m");
    clock.time += 14s;
    beat("B", serving({part("m", {0, 1}, {0, 4})}));
    EXPECT_EQ(replicas("m", 0, 0), 2u);
    clock.time += 1s;
    EXPECT_EQ(replicas("m", 0, 0), 1u);
    EXPECT_EQ(replicas("m", 0, 7), 0u);
    const auto holders = market.placement("m");
    ASSERT_TRUE(holders.ok());
    ASSERT_EQ(holders->size(), 1u);
    EXPECT_EQ((*holders)[0].node, "B");
    EXPECT_GT(market.placement_version("m"), version);
    EXPECT_EQ(market.n_nodes(), 1u);
}

TEST_F(MarketTest, LeavingAndDraining) {
    market.add_model(even_model("m", 2, 8));
    beat("A", serving({part("m", {0, 2}, {0, 8})}));
    Heartbeat draining = serving({part("m", {0, 2}, {0, 8})});
    draining.draining = true;
    beat("A", draining);
    EXPECT_EQ(replicas("m", 1, 0), 0u) << "somebody else should take over";
    EXPECT_TRUE((*market.placement("m"))[0].draining) << "backbones may go on for now";
    EXPECT_TRUE(market.leave("A"));
    EXPECT_FALSE(market.leave("A"));
    EXPECT_TRUE(market.placement("m")->empty());

    const Lease given = lease("B", up_to_experts(8));
    EXPECT_TRUE(market.leave("B"));
    EXPECT_EQ(replicas("m", given.what.block.layers.begin, 0), 0u);
    EXPECT_EQ(market.n_nodes(), 0u);
}

TEST_F(MarketTest, TheVersionChangesWithThePlacementOnly) {
    market.add_model(even_model("m", 1, 8));
    market.add_model(even_model("other", 1, 8));
    Heartbeat heartbeat = serving({part("m", {0, 1}, {0, 8})});
    const uint64_t empty = market.placement_version("m"), other = market.placement_version("other");
    beat("A", heartbeat);
    const uint64_t first = market.placement_version("m");
    EXPECT_GT(first, empty);
    heartbeat.load = 17;
    beat("A", heartbeat);
    EXPECT_EQ(market.placement_version("m"), first);
    EXPECT_EQ((*market.placement("m"))[0].load, 17);
    heartbeat.address = "10.0.0.2:50071";
    beat("A", heartbeat);
    const uint64_t moved = market.placement_version("m");
    EXPECT_GT(moved, first);
    heartbeat.numeric_class = "CPU:AVX2";
    beat("A", heartbeat);
    EXPECT_GT(market.placement_version("m"), moved);
    EXPECT_EQ(market.placement_version("other"), other);
    EXPECT_EQ(market.placement_version("none"), 0u);
}

TEST_F(MarketTest, BudgetsInBytesFollowEachLayer) {
    // Layer 0 has none, 1 has large ones, 2 few, 3 and 4 small ones.
    market.add_model({"m", {{0, 0}, {8, 1000}, {2, 10}, {16, 10}, {16, 10}}, 1});
    EXPECT_EQ(lease("big", up_to_bytes(100'000)).what, part("m", {1, 2}, {0, 8})) << "the next layer has fewer experts";
    EXPECT_EQ(lease("mid", up_to_bytes(320)).what, part("m", {3, 5}, {0, 16})) << "two layers that fit";
    EXPECT_EQ(lease("small", up_to_bytes(999)).what, part("m", {2, 3}, {0, 2}));
    EXPECT_EQ(market.volunteer("tiny", up_to_bytes(9)).status().code(), Code::not_found);
    EXPECT_EQ(market.volunteer("none", up_to_experts(0)).status().code(), Code::not_found);
    EXPECT_EQ(lease("one", up_to_bytes(10)).what.block.experts.size(), 1u) << "beyond the target there is still use";
}

TEST_F(MarketTest, LayersWithoutExpertsLieWithinABlock) {
    market.add_model({"m", {{4, 10}, {0, 0}, {4, 10}, {0, 0}}, 2});
    EXPECT_EQ(lease("A", up_to_experts(8)).what, part("m", {0, 3}, {0, 4}));
    EXPECT_EQ(replicas("m", 2, 3), 1u);
}

TEST_F(MarketTest, NobodyGetsTheSameExpertsTwice) {
    market.add_model(even_model("m", 1, 16));
    const Lease first = lease("A", up_to_experts(6));
    const Lease second = lease("A", up_to_experts(6));
    const Lease third = lease("A", up_to_experts(6));
    EXPECT_EQ(first.what.block.experts, (Range{0, 6}));
    EXPECT_EQ(second.what.block.experts, (Range{6, 12}));
    EXPECT_EQ(third.what.block.experts, (Range{12, 16}));
    EXPECT_EQ(market.volunteer("A", up_to_experts(6)).status().code(), Code::not_found);
    beat("A", serving({first.what, second.what, third.what}));
    EXPECT_EQ(market.n_leases(), 0u);
    EXPECT_EQ(market.volunteer("A", up_to_experts(6)).status().code(), Code::not_found);
}

TEST_F(MarketTest, OneNodeCannotLeaseEverything) {
    market.add_model(even_model("m", 8, 16));
    for (int i = 0; i < 4; ++i)
        lease("A", up_to_experts(4));
    EXPECT_EQ(market.volunteer("A", up_to_experts(4)).status().code(), Code::exhausted);
    lease("B", up_to_experts(4));
}

TEST_F(MarketTest, MovingMustMakeTheMapMoreEven) {
    market.add_model(even_model("m", 2, 8));
    const Holding crowded = part("m", {0, 1}, {0, 8}), empty = part("m", {1, 2}, {0, 8});
    for (const char* node : {"A", "B", "C"})
        beat(node, serving({crowded}));
    VolunteerRequest move = up_to_experts(8);
    move.instead_of = part("m", {0, 1}, {0, 4});
    EXPECT_EQ(market.volunteer("A", move).status().code(), Code::invalid_argument) << "not a whole segment";
    move.instead_of = crowded;
    const Lease given = lease("A", move);
    EXPECT_EQ(given.what, empty);
    EXPECT_EQ(replicas("m", 0, 0), 2u) << "A is leaving";
    EXPECT_EQ(market.volunteer("A", move).status().code(), Code::invalid_argument) << "it is leaving already";
    EXPECT_EQ(market.volunteer("B", move).status().code(), Code::unavailable) << "2 here, 1 there";
    beat("A", serving({empty}));
    EXPECT_EQ(replicas("m", 0, 0), 2u);
    EXPECT_EQ(replicas("m", 1, 0), 1u);
}

TEST_F(MarketTest, WhoDoesNotMoveInTimeStays) {
    market.add_model(even_model("m", 2, 8));
    const Holding crowded = part("m", {0, 1}, {0, 8});
    for (const char* node : {"A", "B"})
        beat(node, serving({crowded}));
    VolunteerRequest move = up_to_experts(8);
    move.instead_of = crowded;
    lease("A", move);
    for (int i = 0; i < 12; ++i) {
        clock.time += 5s;
        for (const char* node : {"A", "B"})
            beat(node, serving({crowded}));
    }
    EXPECT_EQ(replicas("m", 0, 0), 2u);
    EXPECT_EQ(replicas("m", 1, 0), 0u);
}

TEST_F(MarketTest, HeartbeatsThatMakeNoSenseChangeNothing) {
    market.add_model(even_model("m", 2, 8));
    beat("A", serving({part("m", {0, 1}, {0, 8})}));
    const auto code = [&](std::vector<Holding> holds) {
        return market.heartbeat("A", serving(std::move(holds))).status().code();
    };
    EXPECT_EQ(code({part("x", {0, 1}, {0, 8})}), Code::not_found);
    EXPECT_EQ(code({part("m", {0, 1}, {0, 9})}), Code::invalid_argument);
    EXPECT_EQ(code({part("m", {0, 3}, {0, 8})}), Code::invalid_argument);
    EXPECT_EQ(code({part("m", {1, 1}, {0, 8})}), Code::invalid_argument);
    EXPECT_EQ(code({part("m", {0, 1}, {5, 4})}), Code::invalid_argument);
    EXPECT_EQ(code({part("m", {0, 4294967295}, {0, 4294967295})}), Code::invalid_argument);
    EXPECT_EQ(code({part("m", {0, 2}, {0, 4}), part("m", {1, 2}, {3, 8})}), Code::invalid_argument);
    EXPECT_EQ(code(std::vector<Holding>(97, part("m", {0, 1}, {0, 1}))), Code::exhausted);
    EXPECT_EQ(replicas("m", 0, 0), 1u);
    EXPECT_EQ(replicas("m", 1, 0), 0u);
}

TEST_F(MarketTest, WhatIsAskedForMorePaysMore) {
    market.add_model(even_model("busy", 1, 8));
    market.add_model(even_model("idle", 1, 8));
    market.note_rows("busy", 1'000'000);
    EXPECT_GT((*market.demand("busy"))[0].reward, (*market.demand("idle"))[0].reward);
    EXPECT_EQ(lease("A", up_to_experts(8)).what.model, "busy") << "equally rare: where the rows are";
    EXPECT_EQ(lease("B", up_to_experts(8)).what.model, "idle") << "now it is rarer";
    clock.time += 24h;
    EXPECT_EQ((*market.demand("busy"))[0].reward, (*market.demand("idle"))[0].reward) << "long ago";
    VolunteerRequest request = up_to_experts(8);
    request.model = "busy";
    EXPECT_EQ(lease("C", request).what.model, "busy");
    request.model = "none";
    EXPECT_EQ(market.volunteer("D", request).status().code(), Code::not_found);
}

TEST(Reward, IsTheDocumentedFunction) {
    EXPECT_EQ(reward_per_1000_rows({0, 0, 0}), 1000u);
    EXPECT_EQ(reward_per_1000_rows({1, 0, 0}), 4000u);
    EXPECT_EQ(reward_per_1000_rows({0.5, 4 << 20, 0}), 5000u);
    EXPECT_EQ(reward_per_1000_rows({0, 0, 255'000}), 2000u);
    EXPECT_EQ(reward_per_1000_rows({1, UINT64_MAX, 1e30}), 4000u * 9 * 3) << "and no more than that";
    int64_t credits = 0;
    EXPECT_TRUE(credits_for(1999, 1500, credits));
    EXPECT_EQ(credits, 2998);
    EXPECT_FALSE(credits_for(UINT64_MAX, 1000, credits));
    EXPECT_FALSE(credits_for(UINT64_MAX / 2, 3, credits));
}

}  // namespace
}  // namespace linkcpp::hub::market
