// A second worker is asked when the first is late: what that gains, what it may cost, and that it changes no number.

#include "dispatch/rig.h"

namespace linkcpp::test {
namespace {

class Hedging : public DispatcherTest {
  protected:
    /// Two replicas of which the first one is asked, whose usual time is known.
    void warm_up(int n = 60) {
        worker(0, n_expert).far(1ms);
        worker(0, n_expert).far(replica_latency);
        for (int i = 0; i < n; ++i)
            ASSERT_TRUE(run(work).ok());
        ASSERT_EQ(workers[1]->requests, 0u);
    }
    const Work work{1};
    Duration replica_latency = 3ms;
};

TEST_F(Hedging, ASlowReplicaDoesNotDecide) {
    warm_up();
    workers[0]->compute_time = 200ms;
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_LT(took, 30ms);
    EXPECT_EQ(dispatcher->stats().hedges, 1u);
    EXPECT_EQ(dispatcher->stats().hedges_won, 1u);
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(Hedging, TheFirstAnswerCountsAlsoWhenItIsTheFirstWorkers) {
    warm_up();
    workers[0]->compute_time = 8ms;
    workers[1]->compute_time = 100ms;
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_LT(took, 20ms);
    EXPECT_EQ(dispatcher->stats().hedges, 1u);
    EXPECT_EQ(dispatcher->stats().hedges_won, 0u);
    EXPECT_EQ(dispatcher->stats().rows_remote, 61 * n_used) << "counted once";
}

TEST_F(Hedging, AtMostATenthOfTheRequestsAreAskedTwice) {
    replica_latency = 200ms;  // it never wins, and is never asked first
    warm_up();
    for (int i = 0; i < 100; ++i) {
        workers[0]->compute_time = std::chrono::milliseconds(5 + i);  // later than any before
        ASSERT_TRUE(run(work).ok());
        work.check(result);
    }
    const uint64_t hedges = dispatcher->stats().hedges;
    EXPECT_GT(hedges, 2u);
    EXPECT_LE(hedges, 10u + 5u) << "a tenth, and what was saved up before";
}

TEST_F(Hedging, TheLosersLateAnswerChangesNothing) {
    warm_up();
    workers[0]->compute_time = 100ms;
    workers[0]->faults.lie = 1.5f;  // it would show
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    const JobResult before = result;
    network.sim().run_for(1s);
    EXPECT_EQ(rows_with_values(result), rows_with_values(before));
    workers[0]->faults.lie.reset();
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(run(work).ok());
        work.check(result);
    }
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(Hedging, WhenOneOfTwoFailsTheOtherOneIsWaitedFor) {
    for (const size_t victim : {0u, 1u}) {
        workers.clear();
        addresses.clear();
        dispatcher.reset();
        warm_up();
        workers[0]->compute_time = workers[1]->compute_time = 100ms;
        network.loop().after(50ms, [&] { workers[victim]->kill(); });
        ASSERT_TRUE(run(work).ok());
        work.check(result);
        EXPECT_LT(took, 150ms) << "nobody had to begin again";
        EXPECT_EQ(dispatcher->stats().failovers, 0u);
    }
}

TEST_F(Hedging, NotWithAWorkerOfAnotherClass) {
    worker(0, n_expert).far(1ms);
    worker(0, n_expert).numeric_class = "another";
    for (int i = 0; i < 60; ++i)
        ASSERT_TRUE(run(work).ok());
    workers[0]->compute_time = 100ms;
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(workers[1]->requests, 0u);
    EXPECT_EQ(dispatcher->stats().hedges, 0u);
}

TEST_F(Hedging, BothAnswersAreTheSameBits) {
    warm_up();
    const Work prompt(30);
    ASSERT_TRUE(run(prompt).ok());
    const std::vector<float> expected = rows_with_values(result);
    for (int i = 0; i < 30; ++i)
        ASSERT_TRUE(run(prompt).ok());
    workers[0]->compute_time = 200ms;
    ASSERT_TRUE(run(prompt).ok());
    EXPECT_EQ(dispatcher->stats().hedges_won, 1u);
    EXPECT_EQ(rows_with_values(result), expected);
}

}  // namespace
}  // namespace linkcpp::test
