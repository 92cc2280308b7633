// Dispatch in virtual time: whatever workers do, the rows are the right ones, or there is an error in time.

#include "dispatch/dispatcher.h"

#include "dispatch/fake_worker.h"

#include <gtest/gtest.h>

namespace linkcpp {
namespace {

using namespace std::chrono_literals;
using dispatch::Dispatcher;
using dispatch::ExpertJob;
using dispatch::JobResult;
using dispatch::RowState;

constexpr uint32_t n_in = 3, n_out = 5, n_used = 4, n_expert = 16, layer = 2;

wire::SliceOffer offer(uint32_t begin, uint32_t end) {
    wire::SliceOffer offer;
    offer.slice[0] = static_cast<uint8_t>(begin);
    offer.slice[1] = static_cast<uint8_t>(end);
    offer.layer_begin = 0;
    offer.layer_end = 4;
    offer.expert_begin = begin;
    offer.expert_end = end;
    return offer;
}

/// Tokens whose experts and weights follow from their number.
struct Work {
    explicit Work(uint32_t n_tokens, bool sums = true) {
        for (uint32_t t = 0; t < n_tokens; ++t) {
            for (uint32_t i = 0; i < n_in; ++i)
                x.push_back(static_cast<float>(t + 1) + 0.25f * static_cast<float>(i));
            for (uint32_t s = 0; s < n_used; ++s) {
                expert.push_back(static_cast<int32_t>((t * 7 + s * 5 + 1) % n_expert));
                weight.push_back(0.125f * static_cast<float>(s + 1));
            }
        }
        auto program = std::make_shared<dispatch::ProgramCode>();
        program->code = {1, 2, 3};
        program->n_in = n_in;
        program->n_out = n_out;
        program->weighted = true;
        job.layer = layer;
        job.program = program;
        job.n_tokens = n_tokens;
        job.n_used = n_used;
        job.want_sums = sums;
        job.x = x;
        job.expert = expert;
        job.weight = weight;
    }
    float row(uint32_t pair, uint32_t j) const {
        return test::expert_value(layer, static_cast<uint32_t>(expert[pair]), x[pair / n_used * n_in], j);
    }
    /// Every pair's contribution is there exactly once, in its place.
    void check(const JobResult& result) const {
        for (uint32_t t = 0; t < job.n_tokens; ++t) {
            for (uint32_t j = 0; j < n_out; ++j) {
                double got = 0, expected = 0;
                for (uint32_t s = 0; s < n_used; ++s) {
                    const uint32_t pair = t * n_used + s;
                    ASSERT_NE(result.state[pair], RowState::missing) << "pair " << pair;
                    const double value = result.rows[static_cast<size_t>(pair) * n_out + j];
                    if (result.state[pair] == RowState::raw) {
                        ASSERT_EQ(value, row(pair, j)) << "pair " << pair;
                    }
                    if (result.state[pair] != RowState::covered)
                        got += result.state[pair] == RowState::raw ? value * weight[pair] : value;
                    expected += static_cast<double>(row(pair, j)) * weight[pair];
                }
                ASSERT_NEAR(got, expected, 1e-3) << "token " << t;
            }
        }
    }

    std::vector<float> x, weight;
    std::vector<int32_t> expert;
    ExpertJob job;
};

class DispatcherTest : public testing::Test {
  protected:
    test::FakeWorker& worker(uint32_t begin, uint32_t end) {
        const net::Address address{"worker" + std::to_string(workers.size()), 1};
        addresses.push_back(address);
        workers.push_back(std::make_unique<test::FakeWorker>(network, address, offer(begin, end), n_out));
        return *workers.back();
    }
    void make(dispatch::PeerCheck* check = nullptr) {
        settings.numeric_class = "test";
        dispatcher = std::make_unique<Dispatcher>(network, settings, addresses, check);
    }
    /// Runs a job to its end and returns its status; `took` is virtual time.
    Status run(const Work& work) {
        if (!dispatcher) make();
        std::optional<Status> status;
        const Instant begin = network.sim().now();
        dispatcher->start(work.job, [&](Status s, JobResult r) {
            status = std::move(s);
            result = std::move(r);
        });
        EXPECT_TRUE(network.sim().run_until([&] { return status.has_value(); }, 60s)) << "the job never ended";
        took = network.sim().now() - begin;
        return status.value_or(Status(Code::timeout, "never"));
    }

    test::SimNetwork network;
    dispatch::Settings settings;
    std::vector<net::Address> addresses;
    std::vector<std::unique_ptr<test::FakeWorker>> workers;
    std::unique_ptr<Dispatcher> dispatcher;
    JobResult result;
    Duration took{};
};

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
    void (*tell)(test::FakeWorker::Faults&);
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

TEST_F(DispatcherTest, ARequestOverTheWorkersCapIsNotSent) {
    worker(0, n_expert).max_payload = 5000;
    const Work work(400);
    EXPECT_FALSE(run(work).ok());
    EXPECT_EQ(workers[0]->requests, 0u);
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
            return y[0] == test::expert_value(1, 2, 1, 0) + tolerance ? Status()
                                                                      : Status(Code::mismatch, "the canary died");
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
    worker(0, n_expert).max_payload = 5000;
    Work work(400);
    work.job.accept_missing = true;
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(result.state[0], RowState::missing);
    EXPECT_LT(took, 100ms);
}

}  // namespace
}  // namespace linkcpp
