// Large requests: cut by expert where they must be, given the time that a slow link needs, and nothing piles up.

#include "dispatch/rig.h"

#include <numeric>
#include <set>

namespace linkcpp::test {
namespace {

class Flow : public DispatcherTest {
  protected:
    static constexpr uint32_t n_embd = 3072;
    /// A prompt of 4096 tokens: 50 MB of activations, 32768 pairs with 8 experts each (4 here).
    const Work& prompt() {
        if (!prompt_) prompt_.emplace(4096, true, n_embd);
        return *prompt_;
    }
    std::optional<Work> prompt_;
};

TEST_F(Flow, APromptOf4096TokensGoesThroughALinkOfTwoMegabytesPerSecond) {
    worker(0, n_expert);
    network.path(addresses[0]).latency = 20ms;
    network.path(addresses[0]).bytes_per_second = 2e6;
    ASSERT_TRUE(run(prompt(), 600s).ok());
    prompt().check(result);
    EXPECT_EQ(workers[0]->requests, 1u) << "every activation row travels once";
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
    EXPECT_GT(took, 25s) << "50 MB at 2 MB/s";
    EXPECT_LT(took, 30s);
}

/// The network thread of a slow device is busy with 50 MB for half a second; that is no silence.
TEST_F(Flow, AWorkerThatChecksALargeRequestIsNotTakenForSilent) {
    worker(0, n_expert).reads_at = 100e6;
    ASSERT_TRUE(run(Work(1)).ok());
    ASSERT_TRUE(run(prompt(), 600s).ok());
    prompt().check(result);
    EXPECT_EQ(workers[0]->requests, 2u);
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(Flow, AVerySlowLinkIsWaitedForAsLongAsBytesArrive) {
    worker(0, n_expert);
    const Work work(64, false, n_embd);
    make();
    network.path(addresses[0]).bytes_per_second = 30e3;
    ASSERT_TRUE(run(work, 600s).ok());
    work.check(result);
    EXPECT_GT(took, 20s);
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(Flow, ALinkThatStallsInTheMiddleOfAPromptLosesItInTime) {
    worker(0, n_expert);
    worker(0, n_expert);
    for (const net::Address& address : addresses)
        network.path(address).bytes_per_second = 2e6;
    ASSERT_TRUE(run(Work(1)).ok());
    size_t first = 2;
    network.loop().after(10s, [&] {
        first = network.bytes_delivered(addresses[0], true) > 1e6 ? 0 : 1;
        network.path(addresses[first]).partition = true;
    });
    ASSERT_TRUE(run(prompt(), 600s).ok());
    prompt().check(result);
    ASSERT_LT(first, 2u);
    EXPECT_EQ(dispatcher->stats().failovers, 1u);
    EXPECT_LT(took, 10s + 400ms + 30s) << "ten seconds for nothing, the stall, and the prompt itself";
}

TEST_F(Flow, AfterALongPromptSilenceIsStillNoticedAtOnce) {
    worker(0, n_expert);
    worker(0, n_expert);
    for (const net::Address& address : addresses)
        network.path(address).bytes_per_second = 2e6;
    ASSERT_TRUE(run(prompt(), 600s).ok());
    const size_t first = workers[0]->requests > 0 ? 0 : 1;
    network.path(addresses[first]).partition = true;
    ASSERT_TRUE(run(Work(1)).ok());
    EXPECT_LT(took, settings.stall_min + 100ms);
}

TEST_F(Flow, WhatIsOverTheCapIsCutByExpert) {
    worker(0, n_expert).max_payload = 40000;
    const Work work(400, true, 16);  // 400 rows of 64 bytes and 1600 pairs of 16: 51 KB
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_GT(workers[0]->requests, 1u);
    std::set<uint32_t> seen;
    for (const auto& experts : workers[0]->experts) {
        for (const uint32_t expert : experts)
            EXPECT_TRUE(seen.insert(expert).second) << "rows of expert " << expert << " are in two requests";
    }
    EXPECT_EQ(seen.size(), n_expert);
}

TEST_F(Flow, TokensWithinOneOfSeveralRequestsStillComeBackAsSums) {
    worker(0, n_expert).max_payload = 40000;
    settings.split = dispatch::SplitMode::sums;
    const Work work(400, true, 16);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    for (const RowState state : result.state)
        EXPECT_NE(state, RowState::raw);
}

TEST_F(Flow, AnExpertThatIsOverTheCapAloneIsAnErrorThatSaysWhatHelps) {
    worker(0, n_expert).max_payload = 4096;
    const Work work(400, true, 64);  // 100 rows of 256 bytes for each expert
    const Status status = run(work);
    ASSERT_EQ(status.code(), Code::unavailable);
    EXPECT_NE(status.message().find("smaller batches"), std::string::npos) << status.message();
    EXPECT_LT(took, 5s);
}

/// A worker that says it can take everything, answers pings, and reads nothing of what it is sent.
TEST_F(Flow, AWorkerThatDoesNotReadCannotMakeMemoryGrow) {
    worker(0, n_expert).credit = UINT64_MAX;
    const Work work(64, true, n_embd);
    ASSERT_TRUE(run(work).ok());
    network.path(addresses[0]).stall_to_listener = true;
    size_t n_done = 0, most_unsent = 0;
    for (int i = 0; i < 200; ++i)
        dispatcher->start(work.job, [&](const Status&, const JobResult&) { ++n_done; });
    for (int i = 0; i < 600 && n_done < 200; ++i) {
        workers[0]->say_something();
        network.sim().run_for(10ms);
        most_unsent = std::max(most_unsent, network.unsent_to(addresses[0]));
    }
    const size_t request = 64 * n_embd * sizeof(float);
    EXPECT_GT(most_unsent, 0u);
    EXPECT_LT(most_unsent, settings.max_unsent + 2 * request) << "of " << 200 * request;
    EXPECT_TRUE(network.sim().run_until([&] { return n_done == 200; }, 60s)) << "and nobody waits for ever";
}

/// A frame of its own would wake a worker that has nothing to do with it.
TEST_F(Flow, CreditForTheLastResultGoesWithTheNextRequest) {
    worker(0, n_expert);
    const Work work(8);
    ASSERT_TRUE(run(work).ok());
    network.sim().run_for(1s);
    EXPECT_TRUE(workers[0]->credit_back.empty());
    ASSERT_TRUE(run(work).ok());
    const uint64_t result_bytes = wire::result_payload_bytes(n_out, 8);
    EXPECT_EQ(workers[0]->credit_back, std::vector<uint64_t>{result_bytes});
}

TEST_F(Flow, CreditComesAtOnceWhileMoreResultsAreToCome) {
    worker(0, n_expert).compute_time = 10ms;
    const Work work(150);  // three tiles
    ASSERT_TRUE(run(work).ok());
    network.sim().run_for(1s);
    EXPECT_EQ(workers[0]->credit_back.size(), 2u) << "the last tile's waits";
    size_t n_done = 0;
    for (int i = 0; i < 4; ++i)
        dispatcher->start(work.job, [&](const Status&, const JobResult&) { ++n_done; });
    ASSERT_TRUE(network.sim().run_until([&] { return n_done == 4; }, 10s));
    network.sim().run_for(1s);
    const auto& given = workers[0]->credit_back;
    const uint64_t three_tiles = 2 * wire::result_payload_bytes(n_out, 64) + wire::result_payload_bytes(n_out, 22);
    EXPECT_EQ(std::accumulate(given.begin(), given.end(), uint64_t{0}),
              5 * three_tiles - wire::result_payload_bytes(n_out, 22))
        << "all but the last tile's";
}

TEST_F(Flow, ALargePartOfTheWindowIsNeverHeldBack) {
    worker(0, n_expert);
    const uint64_t result_bytes = wire::result_payload_bytes(n_out, 8);
    settings.result_credit = 3 * result_bytes;
    ASSERT_TRUE(run(Work(8)).ok());
    network.sim().run_for(1s);
    EXPECT_EQ(workers[0]->credit_back, std::vector<uint64_t>{result_bytes});
}

}  // namespace
}  // namespace linkcpp::test
