// Dispatch in virtual time: whatever workers do, the rows are the right ones, or there is an error in time.

#include "dispatch/rig.h"

namespace linkcpp::test {
namespace {

TEST_F(DispatcherTest, OneHolderSendsBackOneSumPerToken) {
    worker(0, n_expert);
    const Work work(3);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(result.state[0], RowState::partial);
    EXPECT_EQ(result.state[1], RowState::covered);
    EXPECT_EQ(workers[0]->requests, 1u);
    EXPECT_EQ(workers[0]->outputs[0], wire::Output::sums);
}

TEST_F(DispatcherTest, SplitTokensComeBackRowByRow) {
    worker(0, 8);
    worker(8, n_expert);
    const Work work(40);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(workers[0]->requests + workers[1]->requests, 2u) << "one request per worker, all at once";
    EXPECT_EQ(workers[0]->pairs + workers[1]->pairs, 40u * n_used);
}

TEST_F(DispatcherTest, PartialSumsOnlyWhereAskedFor) {
    worker(0, 8);
    worker(8, n_expert);
    settings.split = dispatch::SplitMode::sums;
    const Work work(40);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    for (RowState state : result.state)
        EXPECT_NE(state, RowState::raw);
}

TEST_F(DispatcherTest, RowsAreNotSummedWhereTheGraphWantsRows) {
    worker(0, n_expert);
    const Work work(70, false);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    for (RowState state : result.state)
        ASSERT_EQ(state, RowState::raw);
}

TEST_F(DispatcherTest, AllRowsOfAnExpertGoInOneRequest) {
    worker(0, 10);
    worker(6, n_expert);
    const Work work(64);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(workers[0]->requests, 1u);
    EXPECT_EQ(workers[1]->requests, 1u);
    EXPECT_EQ(workers[0]->pairs + workers[1]->pairs, 64u * n_used) << "overlapping experts are computed once";
}

TEST_F(DispatcherTest, AReplicaTakesOverWhenTheWorkerIsKilledInMidRequest) {
    worker(0, n_expert).compute_time = 1s;
    worker(0, n_expert).compute_time = 1s;
    make();
    network.loop().after(500ms, [&] {
        for (auto& w : workers) {
            if (w->requests > 0) w->kill();
        }
    });
    const Work work(9);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(dispatcher->stats().failovers, 1u);
    EXPECT_LT(took, 1800ms) << "the rows were on their way elsewhere at once";
}

TEST_F(DispatcherTest, AReplicaTakesOverWithinTheStallTimeWhenAWorkerGoesSilent) {
    worker(0, n_expert);
    worker(0, n_expert);
    const Work work(4);
    ASSERT_TRUE(run(work).ok());
    const size_t first = workers[0]->requests > 0 ? 0 : 1;
    network.path(addresses[first]).partition = true;
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_LT(took, settings.stall_min + 100ms);
    EXPECT_GE(took, settings.stall_min);
}

TEST_F(DispatcherTest, TheOnlyHolderMayGetNoProcessorForThreeSeconds) {
    worker(0, n_expert);
    const Work work(4);
    ASSERT_TRUE(run(work).ok());
    const size_t before = workers[0]->requests;
    workers[0]->reads_at = 1;  // one request, and it is busy for minutes
    network.loop().after(1s, [&] { workers[0]->reads_at = 0; });
    network.loop().after(3s, [&] { workers[0]->wake(); });
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(workers[0]->requests, before + 2) << "the same request once more on the same connection";
}

TEST_F(DispatcherTest, AWorkerThatIsSlowButAliveIsNotGivenUp) {
    worker(0, n_expert).compute_time = 4s;
    const Work work(40);  // time allowed grows with the rows
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(DispatcherTest, AWorkerThatOnlyAnswersPingsIsGivenUpInTheEnd) {
    worker(0, n_expert).faults.swallow = true;
    const Work work(1);
    const Status status = run(work);
    ASSERT_FALSE(status.ok());
    EXPECT_LT(took, 5s);
}

TEST_F(DispatcherTest, WithoutAHolderTheErrorNamesLayerAndExpertsInTime) {
    worker(0, 8);
    const Work work(2);
    const Status status = run(work);
    ASSERT_EQ(status.code(), Code::unavailable);
    EXPECT_NE(status.message().find("layer 2"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("11"), std::string::npos) << status.message();
    EXPECT_LT(took, 5s);
}

TEST_F(DispatcherTest, ASilentOnlyWorkerEndsInAnErrorWithinFiveSeconds) {
    worker(0, n_expert);
    const Work work(2);
    ASSERT_TRUE(run(work).ok());
    network.path(addresses[0]).partition = true;
    ASSERT_EQ(run(work).code(), Code::unavailable);
    EXPECT_LT(took, 5s);
}

TEST_F(DispatcherTest, AKilledOnlyWorkerThatComesBackIsUsedAgain) {
    worker(0, n_expert).compute_time = 300ms;
    make();
    network.loop().after(100ms, [&] { workers[0]->kill(); });
    network.loop().after(1s, [&] { workers[0]->start(); });
    const Work work(3);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
}

TEST_F(DispatcherTest, WhatNobodyHoldsIsHandedBackToACallerThatCanComputeIt) {
    worker(0, 8);
    Work work(6);
    work.job.accept_missing = true;
    ASSERT_TRUE(run(work).ok());
    for (uint32_t pair = 0; pair < work.job.n_pairs(); ++pair) {
        EXPECT_EQ(result.state[pair] == RowState::missing, work.expert[pair] >= 8) << pair;
    }
    EXPECT_LT(took, 100ms) << "nobody waits for a holder when there are local weights";
}

TEST_F(DispatcherTest, ABusyWorkerIsAskedAgain) {
    worker(0, n_expert).faults.refuse = wire::RefuseCode::busy;
    make();
    network.loop().after(200ms, [&] { workers[0]->faults.refuse.reset(); });
    const Work work(2);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
}

struct Lie {
    const char* name;
    void (*tell)(FakeWorker::Faults&);
};

class LyingWorker : public DispatcherTest, public testing::WithParamInterface<Lie> {};

/// Whatever a worker sends instead of its rows, the token comes from the replica, and the liar is not asked again.
TEST_P(LyingWorker, IsNotBelieved) {
    worker(0, n_expert);
    worker(0, n_expert);
    const Work work(70);
    ASSERT_TRUE(run(work).ok());
    const size_t first = workers[0]->requests > 0 ? 0 : 1;
    GetParam().tell(workers[first]->faults);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(workers[1 - first]->requests, 1u);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(workers[first]->requests, 2u) << "it was asked again";
}

INSTANTIATE_TEST_SUITE_P(Lies, LyingWorker,
                         testing::Values(Lie{"not_finite", [](auto& f) { f.not_finite = true; }},
                                         Lie{"wrong_slice", [](auto& f) { f.wrong_slice = true; }},
                                         Lie{"wrong_layer", [](auto& f) { f.wrong_layer = true; }},
                                         Lie{"short_answer", [](auto& f) { f.short_answer = true; }},
                                         Lie{"wrong_width", [](auto& f) { f.wrong_width = true; }},
                                         Lie{"garbage", [](auto& f) { f.garbage = true; }},
                                         Lie{"malformed", [](auto& f) { f.refuse = wire::RefuseCode::malformed; }}),
                         [](const auto& test) { return test.param.name; });

TEST_F(DispatcherTest, AnAnswerThatComesTwiceCountsOnce) {
    worker(0, n_expert).faults.twice = true;
    const Work work(3);
    ASSERT_TRUE(run(work).ok());
    ASSERT_TRUE(run(work).ok());
    work.check(result);
}

TEST_F(DispatcherTest, RequestsWaitForTheCreditThatTheWorkerGrants) {
    worker(0, n_expert).credit = 1;
    const Work work(8);
    make();
    size_t finished = 0;
    for (int i = 0; i < 5; ++i) {
        dispatcher->start(work.job, [&](const Status& status, const JobResult& r) {
            EXPECT_TRUE(status.ok());
            work.check(r);
            ++finished;
        });
    }
    ASSERT_TRUE(network.sim().run_until([&] { return finished == 5; }, 10s));
}

class Refusing final : public dispatch::PeerCheck {
  public:
    void admit(const std::string&, const wire::Welcome&,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override {
        done(Status(Code::mismatch, "another quantisation"));
    }
};

TEST_F(DispatcherTest, AWorkerThatIsNotAdmittedIsNeverAskedAndTheErrorSaysWhy) {
    worker(0, n_expert);
    Refusing check;
    make(&check);
    const Status status = run(Work(1));
    EXPECT_NE(status.message().find("another quantisation"), std::string::npos) << status.message();
    EXPECT_EQ(workers[0]->requests, 0u);
}

class OneCanary final : public dispatch::PeerCheck {
  public:
    void admit(const std::string&, const wire::Welcome& welcome,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override {
        dispatch::Canary canary;
        canary.slice = welcome.slices[0].slice;
        canary.layer = 1;
        canary.program = {{9}, n_in, n_out, false};
        canary.x = {1, 2, 3};
        canary.expert = {2};
        canary.judge = [this](std::span<const float> y) {
            judged += 1;
            return y[0] == expert_value(1, 2, 1, 0) + tolerance ? Status() : Status(Code::mismatch, "the canary died");
        };
        done(std::vector{canary});
    }
    int judged = 0;
    float tolerance = 0;
};

TEST_F(DispatcherTest, ACanaryRunsBeforeTheFirstRow) {
    worker(0, n_expert);
    OneCanary check;
    make(&check);
    ASSERT_TRUE(run(Work(1)).ok());
    EXPECT_EQ(check.judged, 1);
    EXPECT_EQ(workers[0]->requests, 2u);
    EXPECT_EQ(dispatcher->stats().rows_remote, n_used) << "canaries are not work";
}

/// Hashes a large model: says yes after a while, and shows progress, until it hangs.
class SlowCheck final : public dispatch::PeerCheck {
  public:
    SlowCheck(SimNetwork& network, Duration time, Duration hangs_after)
        : loop_(network.sim()), end_(time), hang_(hangs_after) {}
    void admit(const std::string&, const wire::Welcome&,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override {
        loop_.after(end_, [done] { done(std::vector<dispatch::Canary>()); });
    }
    uint64_t progress() const override { return static_cast<uint64_t>(std::min(loop_.now(), Instant(hang_)).count()); }

  private:
    SimLoop& loop_;
    Duration end_, hang_;
};

TEST_F(DispatcherTest, AWorkerThatIsBeingCheckedIsWaitedForAsLongAsTheCheckGetsOn) {
    worker(0, n_expert);
    SlowCheck check(network, 40s, 40s);
    make(&check);
    const Work work(2);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_GT(took, 39s);
}

TEST_F(DispatcherTest, ACheckThatHangsIsNotWaitedFor) {
    worker(0, n_expert);
    SlowCheck check(network, 40s, 10s);
    make(&check);
    EXPECT_EQ(run(Work(2)).code(), Code::unavailable);
    EXPECT_GT(took, 10s);
    EXPECT_LT(took, 15s);
}

TEST_F(DispatcherTest, ACallerWithWeightsDoesNotWaitForACheck) {
    worker(0, n_expert);
    SlowCheck check(network, 40s, 40s);
    make(&check);
    Work work(2);
    work.job.accept_missing = true;
    ASSERT_TRUE(run(work).ok());
    EXPECT_LT(took, settings.settle_timeout + 100ms);
}

TEST_F(DispatcherTest, AWishToStopEndsAJobThatWaits) {
    worker(0, n_expert).faults.swallow = true;
    std::atomic<bool> stop = false;
    settings.stop = &stop;
    make();
    network.loop().after(500ms, [&] { stop = true; });
    EXPECT_EQ(run(Work(1)).code(), Code::unavailable);
    EXPECT_LT(took, 600ms);
}

TEST_F(DispatcherTest, AWishToStopEndsTheWaitForWorkersToo) {
    worker(0, n_expert);
    network.path(addresses[0]).partition = true;
    std::atomic<bool> stop = false;
    settings.stop = &stop;
    make();
    network.loop().after(100ms, [&] { stop = true; });
    EXPECT_FALSE(run(Work(1)).ok());
    EXPECT_LT(took, 200ms);
}

/// A worker whose connections break all the time is worth a line now and then, not one each time.
TEST_F(DispatcherTest, AFlappingConnectionDoesNotFillTheLog) {
    worker(0, n_expert);
    make();
    testing::internal::CaptureStderr();
    for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(run(Work(1)).ok());
        network.cut(addresses[0]);
        network.sim().run_for(200ms);
    }
    const std::string log = testing::internal::GetCapturedStderr();
    const auto n_lines = std::count(log.begin(), log.end(), '\n');
    EXPECT_GE(n_lines, 1);
    EXPECT_LE(n_lines, 3) << log;
}

TEST_F(DispatcherTest, AWorkerWhoseCanaryDiesIsRefused) {
    worker(0, n_expert);
    OneCanary check;
    check.tolerance = 1;
    make(&check);
    EXPECT_FALSE(run(Work(1)).ok());
    EXPECT_EQ(workers[0]->requests, 1u);
}

TEST_F(DispatcherTest, ALateCanaryIsWaitedFor) {
    worker(0, n_expert).compute_time = 700ms;
    OneCanary check;
    make(&check);
    const Work work(40);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_EQ(check.judged, 1);
}

TEST_F(DispatcherTest, ASilentCanaryEndsTheConnectionAndTheWorkerIsTriedAgain) {
    worker(0, n_expert).compute_time = 100ms;
    OneCanary check;
    make(&check);
    network.loop().after(50ms, [&] { network.path(addresses[0]).stall_from_listener = true; });
    network.loop().after(6s, [&] {
        network.path(addresses[0]).stall_from_listener = false;
        network.release(addresses[0]);
    });
    EXPECT_FALSE(run(Work(1)).ok());
    network.sim().run_for(20s);
    const Work work(40);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
}

TEST_F(DispatcherTest, ASlowLinkIsNotTakenForASilentOne) {
    worker(0, n_expert);
    network.path(addresses[0]).latency = 200ms;
    const Work work(2);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(run(work).ok());
        work.check(result);
    }
    EXPECT_EQ(dispatcher->stats().failovers, 0u);
}

TEST_F(DispatcherTest, AWorkerThatGrantsNoCreditDoesNotHoldAJobForEver) {
    worker(0, n_expert).credit = 700;
    workers[0]->faults.no_credit = true;
    Work work(4);
    work.job.accept_missing = true;
    make();
    for (int i = 0; i < 4; ++i) {
        ASSERT_TRUE(run(work).ok());
        EXPECT_LT(took, 5s);
    }
}

TEST_F(DispatcherTest, PongsThatClaimProgressDoNotHoldAJobForEver) {
    worker(0, n_expert).faults.swallow = true;
    workers[0]->faults.lying_pong = true;
    Work work(1);
    EXPECT_FALSE(run(work).ok());
    EXPECT_LT(took, 30s);
    work.job.accept_missing = true;
    network.sim().run_for(15s);
    ASSERT_TRUE(run(work).ok());
    EXPECT_LT(took, 30s);
    EXPECT_EQ(result.state[0], RowState::missing);
}

TEST_F(DispatcherTest, ABusyWorkersRowsGoToAReplicaAtOnce) {
    worker(0, n_expert);
    worker(0, n_expert);
    const Work work(2);
    ASSERT_TRUE(run(work).ok());
    const size_t first = workers[0]->requests > 0 ? 0 : 1;
    workers[first]->faults.refuse = wire::RefuseCode::busy;
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    EXPECT_LT(took, 10ms);
}

TEST_F(DispatcherTest, WhatABusyWorkerRefusesIsHandedBackToACallerThatCanComputeIt) {
    worker(0, n_expert).faults.refuse = wire::RefuseCode::busy;
    Work work(2);
    work.job.accept_missing = true;
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(result.state[0], RowState::missing);
    EXPECT_LT(took, 100ms);
}

TEST_F(DispatcherTest, WhatIsOverTheCapIsHandedBackToACallerThatCanComputeIt) {
    worker(0, n_expert).max_payload = 4096;
    Work work(400, true, 64);  // an expert alone is over it
    work.job.accept_missing = true;
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(result.state[0], RowState::missing);
    EXPECT_LT(took, 100ms);
}

}  // namespace
}  // namespace linkcpp::test
