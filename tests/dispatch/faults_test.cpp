// Every fault at every point of a request's life, against every way out of it: a replica, local weights, neither. The
// promise: the right rows where anybody has them, else an error in time (docs/ARCHITECTURE.md, "Failing").

#include "dispatch/compare.h"
#include "dispatch/rig.h"

namespace linkcpp::test {
namespace {

using Point = FakeWorker::Point;
using Way = FakeWorker::Way;

enum class Rescue { replica, local_weights, neither };
constexpr const char* rescue_names[] = {"replica", "local_weights", "neither"};

struct Breakdown {
    const char* name;
    Point point;
    Way way;
};

const Breakdown breakdowns[] = {
    {"dies_before_welcome", Point::before_welcome, Way::die},
    {"stalls_before_welcome", Point::before_welcome, Way::stall},
    {"dies_after_welcome", Point::after_welcome, Way::die},
    {"stalls_after_welcome", Point::after_welcome, Way::stall},
    {"dies_on_compute", Point::on_compute, Way::die},
    {"stalls_on_compute", Point::on_compute, Way::stall},
    {"hangs_on_compute", Point::on_compute, Way::hang},
    {"dies_in_first_tile", Point::in_first_tile, Way::die},
    {"stalls_in_first_tile", Point::in_first_tile, Way::stall},
    {"hangs_in_first_tile", Point::in_first_tile, Way::hang},
    {"dies_after_first_tile", Point::after_first_tile, Way::die},
    {"stalls_after_first_tile", Point::after_first_tile, Way::stall},
    {"hangs_after_first_tile", Point::after_first_tile, Way::hang},
    {"dies_before_last_tile", Point::before_last_tile, Way::die},
    {"stalls_before_last_tile", Point::before_last_tile, Way::stall},
    {"dies_after_last_tile", Point::after_last_tile, Way::die},
    {"stalls_after_last_tile", Point::after_last_tile, Way::stall},
};

class Faults : public DispatcherTest {
  protected:
    /// Runs a job that meets the fault. Every row is right, or with nobody to help there is an error in time.
    void expect_promise(Rescue rescue, uint32_t n_tokens, bool answer_may_come) {
        Work work(n_tokens);
        work.job.accept_missing = rescue == Rescue::local_weights;
        const Status status = run(work);
        if (rescue == Rescue::neither && !answer_may_come) {
            EXPECT_FALSE(status.ok());
            EXPECT_NE(status.message().find("layer 2"), std::string::npos) << status.message();
        } else if (rescue != Rescue::neither) {
            ASSERT_TRUE(status.ok()) << status.message();
        }
        // 2 s + 20 ms per pair for one that lives and does not get on; 250 ms and 2.5 s for all others.
        EXPECT_LT(took, 5s + work.job.n_pairs() * settings.compute_per_pair);
        if (status.ok()) check_but_missing(work);
    }
    void check_but_missing(const Work& work) {
        for (uint32_t pair = 0; pair < work.job.n_pairs(); ++pair) {
            // What the caller computes itself: his numbers, not the worker's.
            if (result.state[pair] != RowState::missing) continue;
            ASSERT_TRUE(work.job.accept_missing);
            for (uint32_t j = 0; j < n_out; ++j)
                result.rows[static_cast<size_t>(pair) * n_out + j] = work.row(pair, j);
            result.state[pair] = RowState::raw;
        }
        work.check(result);
    }
};

class Breaks : public Faults, public testing::WithParamInterface<std::tuple<Breakdown, Rescue, bool>> {};

TEST_P(Breaks, TheRowsAreRightOrThereIsAnErrorInTime) {
    const auto& [breakdown, rescue, is_prompt] = GetParam();
    FakeWorker& broken = worker(0, n_expert);
    if (rescue == Rescue::replica) worker(0, n_expert).far(30ms);  // so that the broken one is asked first
    broken.break_at(breakdown.point, breakdown.way);
    const bool is_answered = breakdown.point == Point::after_welcome || breakdown.point == Point::after_last_tile ||
                             (breakdown.point == Point::after_first_tile && !is_prompt);
    expect_promise(rescue, is_prompt ? 300 : 1, is_answered);
    // And the next one, with the worker as it is now.
    expect_promise(rescue, 1, true);
}

INSTANTIATE_TEST_SUITE_P(All, Breaks,
                         testing::Combine(testing::ValuesIn(breakdowns),
                                          testing::Values(Rescue::replica, Rescue::local_weights, Rescue::neither),
                                          testing::Bool()),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param).name) + "_" +
                                    rescue_names[static_cast<int>(std::get<1>(test.param))] +
                                    (std::get<2>(test.param) ? "_prompt" : "_decode");
                         });

struct Falsehood {
    const char* name;
    void (*tell)(FakeWorker::Faults&);
    bool shows;  // without an audit
};

const Falsehood falsehoods[] = {
    {"nan", [](auto& f) { f.lie = std::numeric_limits<float>::quiet_NaN(); }, true},
    {"infinity", [](auto& f) { f.lie = -std::numeric_limits<float>::infinity(); }, true},
    {"short", [](auto& f) { f.short_answer = true; }, true},
    {"long", [](auto& f) { f.long_answer = true; }, true},
    {"wrong_width", [](auto& f) { f.wrong_width = true; }, true},
    {"wrong_slice", [](auto& f) { f.wrong_slice = true; }, true},
    {"wrong_layer", [](auto& f) { f.wrong_layer = true; }, true},
    {"wrong_offset", [](auto& f) { f.wrong_offset = true; }, true},
    {"wrong_request", [](auto& f) { f.wrong_request = true; }, true},
    {"wrong_attempt", [](auto& f) { f.wrong_attempt = true; }, true},
    {"duplicate", [](auto& f) { f.twice = true; }, true},
    {"finite", [](auto& f) { f.lie = 1.5f; }, false},
    {"last_bit", [](auto& f) { f.last_bit = true; }, false},
    {"zeros", [](auto& f) { f.zeros = true; }, false},
    {"another_expert", [](auto& f) { f.another_expert = true; }, false},
};

/// Has the weights: computes an answer again as the fake workers do.
class Weights final : public dispatch::PeerCheck {
  public:
    void admit(const std::string&, const wire::Welcome&,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override {
        done(std::vector<dispatch::Canary>());
    }
    bool can_audit() const override { return true; }
    void audit(dispatch::AuditRequest request, std::function<void(Status)> done) override {
        n_audits += 1;
        const auto rows = fake_rows(request.layer, request.compute, 0, n_out);
        done(dispatch::compare_rows(rows, request.rows, n_out, request.tolerance));
    }
    int n_audits = 0;
};

class Lies : public Faults, public testing::WithParamInterface<std::tuple<Falsehood, Rescue, bool>> {
  protected:
    Weights weights;
};

/// All answers are audited before they are used: no lie of any kind gets through, whoever there is to compare with.
TEST_P(Lies, NoneIsUsed) {
    const auto& [falsehood, rescue, is_prompt] = GetParam();
    FakeWorker& liar = worker(0, n_expert);
    if (rescue == Rescue::replica) worker(0, n_expert).far(30ms);
    falsehood.tell(liar.faults);
    if (!falsehood.shows) settings.audit_share = 1;
    // A liar and an honest worker without weights to judge them: then neither is used, which is the other test.
    make(falsehood.shows && rescue != Rescue::local_weights ? nullptr : &weights);
    const bool is_true = std::string(falsehood.name) == "duplicate";
    expect_promise(rescue, is_prompt ? 150 : 1, is_true);
    expect_promise(rescue, 1, is_true);
}

INSTANTIATE_TEST_SUITE_P(All, Lies,
                         testing::Combine(testing::ValuesIn(falsehoods),
                                          testing::Values(Rescue::replica, Rescue::local_weights, Rescue::neither),
                                          testing::Bool()),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param).name) + "_" +
                                    rescue_names[static_cast<int>(std::get<1>(test.param))] +
                                    (std::get<2>(test.param) ? "_prompt" : "_decode");
                         });

class Audits : public Faults {
  protected:
    Weights weights;
};

TEST_F(Audits, WithoutWeightsTwoWorkersThatDisagreeAreBothNotUsed) {
    worker(0, n_expert).faults.lie = 1.5f;
    worker(0, n_expert);
    settings.audit_share = 1;
    const Status status = run(Work(1));
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_NE(status.message().find("disagree"), std::string::npos) << status.message();
    EXPECT_LT(took, 5s);
    EXPECT_EQ(dispatcher->stats().audits_failed, 1u);
}

TEST_F(Audits, TwoHonestWorkersConfirmEachOther) {
    worker(0, n_expert);
    worker(0, n_expert);
    settings.audit_share = 1;
    const Work work(90);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(run(work).ok());
        work.check(result);
    }
    EXPECT_EQ(dispatcher->stats().audits, 3u);
    EXPECT_EQ(workers[0]->requests + workers[1]->requests, 6u);
    EXPECT_EQ(dispatcher->stats().rows_remote, 3 * 90 * n_used) << "an audit is not work";
}

TEST_F(Audits, WhereNobodyCanCompareAllAnswersMeansNone) {
    worker(0, n_expert);
    settings.audit_share = 1;
    const Status status = run(Work(1));
    EXPECT_EQ(status.code(), Code::unavailable);
    EXPECT_NE(status.message().find("audited"), std::string::npos) << status.message();
}

TEST_F(Audits, OtherClassesMayDifferInLastBits) {
    worker(0, n_expert).faults.last_bit = true;
    workers[0]->numeric_class = "another";
    settings.audit_share = 1;
    make(&weights);
    ASSERT_TRUE(run(Work(1)).ok());
    workers[0]->faults.another_expert = true;
    EXPECT_FALSE(run(Work(1)).ok());
}

TEST_F(Audits, OfEachConnectionTheFirstAnswerAndThenEverySoManieth) {
    worker(0, n_expert);
    settings.audit_share = 0.1;
    make(&weights);
    const Work work(1);
    for (int i = 0; i < 31; ++i)
        ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(weights.n_audits, 4);
    workers[0]->kill();
    workers[0]->start();
    network.sim().run_for(3s);
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(weights.n_audits, 5);
}

TEST_F(Audits, AWorkerThatLiesFromTheStartIsFoundBeforeItsFirstAnswerIsUsed) {
    worker(0, n_expert).faults.lie = 1.5f;
    worker(0, n_expert).far(30ms);
    settings.audit_share = 0.01;
    make(&weights);
    const Work work(5);
    ASSERT_TRUE(run(work).ok());
    work.check(result);
    network.sim().run_for(60s);
    ASSERT_TRUE(run(work).ok());
    EXPECT_EQ(workers[0]->requests, 1u) << "it is not asked again for an hour";
}

/// What a sample can promise: the lie is found, and the decode that used it does not go on as if nothing were.
TEST_F(Audits, AWorkerThatBeginsToLieIsFoundAndTheDecodeFails) {
    worker(0, n_expert);
    worker(0, n_expert).far(30ms);
    settings.audit_share = 0.1;
    make(&weights);
    const Work work(1);
    ASSERT_TRUE(run(work).ok());
    workers[0]->faults.lie = 1.5f;
    Status status;
    int n_jobs = 0;
    while (status.ok() && n_jobs < 20) {
        status = run(work);
        ++n_jobs;
    }
    EXPECT_EQ(status.code(), Code::corrupt);
    EXPECT_NE(status.message().find("cannot be trusted"), std::string::npos) << status.message();
    EXPECT_LE(n_jobs, 12);
    ASSERT_TRUE(run(work).ok()) << "only once, and then with the other worker";
    work.check(result);
}

}  // namespace
}  // namespace linkcpp::test
