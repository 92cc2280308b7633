// Which jobs are computed in one go and which in parts, and that both give the same. Time is the test's own.
#include "worker/job_runner.h"

#include <gtest/gtest.h>

namespace linkcpp::worker {
namespace {

using std::chrono::microseconds, std::chrono::seconds;

class TestClock final : public Clock {
  public:
    Instant now() const override { return time; }
    Instant time{0};
};

/// A row is {x * (expert + 1)} and takes `per_pair`.
class SlowEngine final : public moe::Engine {
  public:
    explicit SlowEngine(TestClock& clock) : clock_(clock) {}
    std::vector<int> layers() const override { return {0}; }
    moe::LayerShapes shapes(int) const override { return {}; }
    int n_expert() const override { return 16; }
    uint64_t bytes() const override { return 0; }
    Status compute_rows(int, const moe::Program&, std::span<const float> x, std::span<const uint32_t> x_row,
                        std::span<const uint32_t> expert, const TakeRows& take) override {
        calls.push_back(expert.size());
        clock_.time += per_pair * static_cast<Duration::rep>(expert.size());
        std::vector<float> y;
        for (size_t p = 0; p < expert.size(); ++p)
            y.push_back(x[x_row[p]] * static_cast<float>(expert[p] + 1));
        take(y);
        if (stops != nullptr) *stops = true;
        return {};
    }

    Duration per_pair = microseconds(100);
    std::vector<size_t> calls;
    std::atomic<bool>* stops = nullptr;

  private:
    TestClock& clock_;
};

class JobRunnerTest : public testing::Test {
  protected:
    /// `n_tokens` tokens with four experts each.
    ComputeJob job(uint32_t n_tokens, wire::Output output = wire::Output::sums) {
        ComputeJob job{&engine, 0, std::make_shared<const moe::Program>(), {}, 1, true};
        wire::Compute& request = job.request;
        request.output = output;
        request.n_x = n_tokens;
        request.n_in = 1;
        for (uint32_t t = 0; t < n_tokens; ++t) {
            request.x.push_back(static_cast<float>(t));
            for (uint32_t used = 0; used < 4; ++used) {
                request.x_row.push_back(t);
                request.expert.push_back((t + 5 * used) % 16);
                if (output == wire::Output::rows) continue;
                request.group.push_back(t);
                request.weight.push_back(0.25f * static_cast<float>(used + 1));
            }
        }
        request.n_rows_out = output == wire::Output::sums ? n_tokens : 4 * n_tokens;
        return job;
    }
    /// How many pairs the engine was given at a time.
    std::vector<size_t> calls_of(const ComputeJob& job) {
        engine.calls.clear();
        const uint64_t done = pairs_done;
        outcome = runner.run(job, pairs_done, stop);
        EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
        EXPECT_EQ(pairs_done - done, job.request.expert.size());
        return engine.calls;
    }

    TestClock clock;
    SlowEngine engine{clock};
    JobRunner runner{clock, seconds(1)};
    std::atomic<uint64_t> pairs_done = 0;
    std::atomic<bool> stop = false;
    ComputeOutcome outcome;
};

TEST_F(JobRunnerTest, a_long_job_is_computed_at_once_when_it_will_not_take_long) {
    EXPECT_EQ(calls_of(job(1)), std::vector<size_t>{4});
    EXPECT_GT(calls_of(job(1000)).size(), 1u) << "nothing is known about the speed yet";
    EXPECT_EQ(calls_of(job(1000)), std::vector<size_t>{4000}) << "0.4 s";
    EXPECT_EQ(outcome.compute, microseconds(400'000));
    EXPECT_GT(calls_of(job(3000)).size(), 1u) << "1.2 s";
}

TEST_F(JobRunnerTest, a_machine_that_becomes_slow_computes_in_parts_again) {
    calls_of(job(1000));
    engine.per_pair = microseconds(1000);
    EXPECT_EQ(calls_of(job(1000)).size(), 1u);
    EXPECT_GT(calls_of(job(1000)).size(), 1u) << "the last one took 4 s";
    engine.per_pair = microseconds(100);
    EXPECT_GT(calls_of(job(1000)).size(), 1u);
    EXPECT_EQ(calls_of(job(1000)).size(), 1u) << "its parts were fast again";
}

TEST_F(JobRunnerTest, small_jobs_say_nothing_about_the_speed_of_large_ones) {
    calls_of(job(1000));
    engine.per_pair = seconds(1);
    calls_of(job(1));
    engine.per_pair = microseconds(100);
    EXPECT_EQ(calls_of(job(1000)).size(), 1u);
}

TEST_F(JobRunnerTest, a_job_without_memory_for_it_is_never_computed_at_once) {
    ComputeJob large = job(1000);
    large.at_once = false;
    for (int i = 0; i < 2; ++i) {
        for (const size_t n : calls_of(large))
            EXPECT_LT(n, 4000u);
    }
}

TEST_F(JobRunnerTest, parts_and_the_whole_give_the_same) {
    for (const auto output : {wire::Output::rows, wire::Output::sums}) {
        JobRunner fresh(clock, seconds(0));
        const ComputeOutcome in_parts = fresh.run(job(1000, output), pairs_done, stop);
        calls_of(job(1000, output));
        EXPECT_EQ(calls_of(job(1000, output)).size(), 1u);
        EXPECT_EQ(outcome.rows, in_parts.rows);
        const wire::Compute& request = job(1000, output).request;
        EXPECT_EQ(outcome.rows.size(), request.n_rows_out);
        if (output == wire::Output::rows) {
            EXPECT_EQ(outcome.rows[4 * 7 + 1], 7.0f * 13.0f) << "token 7, expert 12";
        }
    }
}

TEST_F(JobRunnerTest, all_pairs_of_an_expert_are_in_one_part) {
    for (const size_t n : calls_of(job(960)))
        EXPECT_EQ(n % 240, 0u) << "an expert has 240 pairs";
}

TEST_F(JobRunnerTest, stops_between_parts) {
    engine.stops = &stop;
    const ComputeOutcome stopped = runner.run(job(1000), pairs_done, stop);
    EXPECT_EQ(stopped.status.code(), Code::unavailable);
    EXPECT_EQ(engine.calls.size(), 1u);
}

}  // namespace
}  // namespace linkcpp::worker
