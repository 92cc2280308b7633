// The autonomous worker in virtual time, with the real market.
#include "worker/join_rig.h"

namespace linkcpp::worker {
namespace {

using Kind = JoinEvent::Kind;
using hub::market::even_model;

class JoinTest : public testing::Test {
  protected:
    FakeWorker& add(JoinSettings settings) {
        workers.push_back(std::make_unique<FakeWorker>(hub, fmt::format("n{}", workers.size()), settings,
                                                       static_cast<uint32_t>(workers.size()) + 1));
        return *workers.back();
    }
    static JoinSettings experts(uint64_t n) {
        JoinSettings settings;
        settings.max_experts = n;
        return settings;
    }
    static JoinSettings bytes(uint64_t n) {
        JoinSettings settings;
        settings.max_bytes = n;
        return settings;
    }
    void run(Duration duration) {
        const Instant end = clock.time + duration;
        while (clock.time < end) {
            for (auto& worker : workers)
                worker->step(clock.time);
            clock.time += 100ms;
        }
    }
    uint32_t replicas(uint32_t layer, uint32_t expert, const std::string& model = "m") {
        const auto segments = hub.market->demand(model);
        for (const auto& segment : *segments) {
            if (segment.layer == layer && segment.experts.begin <= expert && expert < segment.experts.end)
                return segment.replicas;
        }
        return UINT32_MAX;
    }
    size_t n_holders(const std::string& model = "m") { return hub.market->placement(model)->size(); }

    ManualClock clock;
    FakeHub hub{clock};
    std::vector<std::unique_ptr<FakeWorker>> workers;
};

TEST_F(JoinTest, FromNothingToServing) {
    hub.serve(even_model("m", 1, 8, 1'000'000));
    FakeWorker& worker = add(experts(4));
    worker.slices.bytes_per_second = 4e6 / 1200;  // twenty minutes
    run(1199s);
    EXPECT_EQ(worker.count(Kind::lapsed), 1) << "below 128 KiB/s a lease ends, but the download goes on";
    run(10s);
    EXPECT_EQ(worker.slices.served, (std::vector<Segment>{{"m", 0, 1, 0, 4}}));
    EXPECT_EQ(n_holders(), 1u);
    EXPECT_EQ(replicas(0, 0), 1u);
    EXPECT_EQ(worker.count(Kind::lease), 1);
    EXPECT_EQ(worker.loop.status().n_experts, 4u);
}

TEST_F(JoinTest, ALeaseIsKeptThroughALongDownload) {
    hub.serve(even_model("m", 1, 8, 200'000'000));
    FakeWorker& worker = add(experts(8));
    worker.slices.bytes_per_second = 1.4e6;  // nineteen minutes
    run(1000s);
    EXPECT_EQ(hub.market->n_leases(), 1u);
    const uint64_t reward = (*hub.market->demand("m"))[0].reward;
    run(200s);
    EXPECT_EQ(worker.count(Kind::lapsed), 0);
    EXPECT_EQ(worker.slices.n_fetches, 1);
    EXPECT_GT(*hub.market->reward("n0", {"m", {{0, 1}, {0, 8}}}), reward) << "what was promised when nobody had it";
}

TEST_F(JoinTest, FillsItsBudgetWithSeveralSlicesAndNotMore) {
    hub.serve({"m", {{0, 0}, {8, 1000}, {0, 0}, {8, 1000}, {8, 5000}}, 2});
    FakeWorker& worker = add(bytes(30'000));
    run(5min);
    EXPECT_LE(worker.slices.most_memory, 30'000u);
    EXPECT_GT(worker.loop.status().held_bytes, 25'000u);
    FakeWorker& counted = add(experts(16));
    run(5min);
    EXPECT_EQ(counted.loop.status().n_experts, 16u);
}

TEST_F(JoinTest, TakesLessWhereMemoryIsMoreThanTheHubCounts) {
    hub.serve(even_model("m", 1, 16, 1000));
    FakeWorker& worker = add(bytes(8'000));
    worker.slices.memory_per_byte = 1.3;
    run(5min);
    EXPECT_EQ(worker.count(Kind::fetch_failed), 1);
    EXPECT_LE(worker.slices.most_memory, 8'000u);
    EXPECT_EQ(worker.loop.status().n_experts, 6u);
}

TEST_F(JoinTest, KeepsItsSliceAcrossARestartAndOffersItFirst) {
    hub.serve(even_model("m", 4, 8));
    FakeWorker& worker = add(experts(8));
    worker.slices.keep({"m", 2, 3, 0, 8}, hub.fingerprints["m"]);
    hub.away = true;
    run(1s);
    EXPECT_EQ(worker.slices.served.size(), 1u) << "backbones may know it already";
    hub.away = false;
    run(10s);
    EXPECT_EQ(replicas(2, 0), 1u);
    EXPECT_EQ(worker.slices.n_fetches, 0);
    EXPECT_EQ(worker.count(Kind::kept), 1);
}

TEST_F(JoinTest, ADamagedSliceFromBeforeIsForgottenAndTheOthersAreServed) {
    hub.serve(even_model("m", 4, 8));
    FakeWorker& worker = add(experts(24));
    for (uint32_t layer = 0; layer < 3; ++layer)
        worker.slices.keep({"m", layer, layer + 1, 0, 8}, hub.fingerprints["m"]);
    worker.slices.damaged.insert({"m", 1, 2, 0, 8});
    hub.away = true;
    run(1s);
    EXPECT_EQ(worker.slices.served, (std::vector<Segment>{{"m", 0, 1, 0, 8}, {"m", 2, 3, 0, 8}}));
    EXPECT_EQ(worker.slices.disk.size(), 2u);
    EXPECT_EQ(worker.count(Kind::kept), 2);
    hub.away = false;
    run(1min);
    EXPECT_EQ(worker.slices.n_fetches, 1) << "there is room for another one";
    EXPECT_EQ(worker.slices.served.size(), 3u);
}

TEST_F(JoinTest, ASliceOfAModelThatWasReplacedIsForgotten) {
    hub.serve(even_model("m", 4, 8));
    FakeWorker& worker = add(experts(8));
    worker.slices.keep({"m", 2, 3, 0, 8}, "fingerprint of another m");
    worker.slices.keep({"gone", 0, 1, 0, 4}, "its fingerprint");
    run(10s);
    EXPECT_EQ(worker.slices.served, (std::vector<Segment>{{"m", 0, 1, 0, 8}}));
    ASSERT_EQ(worker.slices.disk.size(), 2u);
    EXPECT_EQ(worker.slices.disk[0].what.model, "gone") << "that model may come back";
    // And while it runs: the hub comes back with other weights under the same name.
    hub.fingerprints["m"] = "a third";
    hub.restart();
    run(30s);
    EXPECT_EQ(worker.slices.disk.back().fingerprint, "a third");
    EXPECT_EQ(worker.slices.disk.size(), 2u);
}

TEST_F(JoinTest, AHubThatIsAwayIsAskedLaterAndLaterAndFoundAgain) {
    hub.serve(even_model("m", 1, 8));
    FakeWorker& worker = add(experts(8));
    run(30s);
    ASSERT_EQ(worker.slices.served.size(), 1u);
    hub.away = true;
    run(1h);
    const std::vector<Instant>& attempts = worker.port.attempts;
    EXPECT_GT(attempts.size(), 3600u / 75);
    EXPECT_LT(attempts.size(), 3600u / 45 + 12);
    for (size_t i = 1; i < attempts.size(); ++i)
        ASSERT_LE(attempts[i] - attempts[i - 1], 76s);
    EXPECT_EQ(worker.count(Kind::hub_away), 1);
    EXPECT_EQ(worker.slices.served.size(), 1u) << "it serves on";
    EXPECT_EQ(n_holders(), 0u);
    hub.restart();
    hub.away = false;
    run(76s);
    EXPECT_EQ(worker.count(Kind::hub_back), 1);
    EXPECT_EQ(n_holders(), 1u);
    EXPECT_EQ(worker.slices.n_fetches, 1) << "nothing is fetched again";
}

TEST_F(JoinTest, ManyWorkersDoNotComeBackAllAtOnce) {
    hub.serve(even_model("m", 1, 8));
    for (int i = 0; i < 50; ++i)
        add(experts(1));
    run(1min);
    hub.away = true;
    run(10min);
    std::map<int64_t, int> by_second;
    for (auto& worker : workers) {
        const auto& attempts = worker->port.attempts;
        by_second[std::chrono::duration_cast<std::chrono::seconds>(attempts.back()).count()] += 1;
    }
    for (const auto& [second, n] : by_second)
        EXPECT_LT(n, 12) << "at second " << second;
}

TEST_F(JoinTest, AnExpiredTokenIsRenewedWithoutAGap) {
    hub.serve(even_model("m", 1, 8));
    FakeWorker& worker = add(experts(8));
    run(30s);
    for (int i = 0; i < 5; ++i) {
        hub.tokens.clear();
        run(20s);
        EXPECT_EQ(n_holders(), 1u);
    }
    EXPECT_EQ(hub.n_registrations, 6);
    EXPECT_EQ(worker.count(Kind::hub_away), 0);
}

TEST_F(JoinTest, AHubThatDoesNotWantItIsAnErrorAtTheStartOnly) {
    hub.serve(even_model("m", 1, 8));
    hub.wants_nobody = true;
    FakeWorker& refused = add(experts(8));
    run(10s);
    EXPECT_EQ(refused.failed.code(), Code::unsupported);
    hub.wants_nobody = false;
    FakeWorker& member = add(experts(8));
    run(30s);
    hub.wants_nobody = true;
    hub.tokens.clear();
    run(5min);
    EXPECT_TRUE(member.failed.ok());
    EXPECT_EQ(member.slices.served.size(), 1u);
}

TEST_F(JoinTest, ADamagedDownloadIsNotServedAndTriedAgain) {
    hub.serve(even_model("m", 1, 8));
    FakeWorker& worker = add(experts(8));
    worker.slices.n_broken = 2;
    run(5min);
    EXPECT_EQ(worker.count(Kind::fetch_failed), 2);
    EXPECT_EQ(worker.slices.served.size(), 1u);
    EXPECT_EQ(hub.market->n_leases(), 0u);
}

TEST_F(JoinTest, AHubThatForgetsALeaseGetsTheSliceAllTheSame) {
    hub.serve(even_model("m", 1, 8, 10'000'000));
    FakeWorker& worker = add(experts(8));
    worker.slices.bytes_per_second = 1e6;
    run(20s);
    hub.restart();
    run(80s);
    EXPECT_EQ(worker.count(Kind::lapsed), 1);
    EXPECT_EQ(worker.slices.n_fetches, 1);
    EXPECT_EQ(replicas(0, 0), 1u);
}

TEST_F(JoinTest, MovesToWhereNobodyIs) {
    hub.serve(even_model("m", 1, 8));
    for (int i = 0; i < 3; ++i)
        add(experts(8));
    run(1min);
    EXPECT_EQ(replicas(0, 0), 3u);
    hub.serve(even_model("new", 1, 8));
    FakeWorker& first = *workers[0];
    first.slices.bytes_per_second = 100;  // 80 s: the old slice is served meanwhile
    for (auto& worker : workers)
        worker->slices.bytes_per_second = 100;
    run(100s);
    size_t serving = 0;
    for (auto& worker : workers)
        serving += worker->slices.served.size();
    EXPECT_EQ(serving, 3u);
    run(5min);
    EXPECT_EQ(replicas(0, 0) + replicas(0, 0, "new"), 3u);
    EXPECT_GE(replicas(0, 0, "new"), 1u);
    EXPECT_GE(replicas(0, 0), 1u);
    int n_moves = 0;
    for (auto& worker : workers) {
        n_moves += worker->count(Kind::moving);
        EXPECT_EQ(worker->slices.disk.size(), 1u) << "the old slice goes from the disk";
        EXPECT_LE(worker->slices.most_memory, 8000u);
    }
    EXPECT_EQ(n_moves, 1);
}

TEST_F(JoinTest, ASwarmComesToRest) {
    hub.serve(even_model("m", 6, 16));
    for (int i = 0; i < 40; ++i)
        add(experts(8));
    run(5min);
    // A third of it goes, at random, without a word; the rest evens out.
    std::mt19937 random(7);
    std::shuffle(workers.begin(), workers.end(), random);
    workers.resize(27);
    run(40min);
    const auto moves = [&] {
        int n = 0;
        for (auto& worker : workers)
            n += worker->count(Kind::moving);
        return n;
    };
    for (uint32_t layer = 0; layer < 6; ++layer) {
        for (uint32_t expert = 0; expert < 16; ++expert)
            ASSERT_GE(replicas(layer, expert), 1u) << layer << " " << expert;
    }
    const int before = moves();
    run(3h);
    EXPECT_EQ(moves(), before) << "no restlessness";
}

TEST_F(JoinTest, DrainingLeavesTheMapAtOnce) {
    hub.serve(even_model("m", 2, 8));
    FakeWorker& worker = add(experts(8));
    run(30s);
    ASSERT_EQ(n_holders(), 1u);
    worker.loop.drain();
    EXPECT_EQ(n_holders(), 0u);
    EXPECT_EQ(worker.slices.disk.size(), 1u) << "kept for the next time";
    FakeWorker& busy = add(experts(8));
    busy.slices.bytes_per_second = 1;
    busy.step(clock.time);
    busy.loop.drain();
    EXPECT_EQ(busy.slices.n_stopped, 1);
    EXPECT_EQ(hub.market->n_leases(), 0u);
}

}  // namespace
}  // namespace linkcpp::worker
