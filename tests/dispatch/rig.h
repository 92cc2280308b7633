#pragma once
// A dispatcher with fake workers in virtual time, jobs whose every number is known, and the check that a result has all
// of them in their places.

#include "dispatch/dispatcher.h"
#include "dispatch/fake_worker.h"

#include <gtest/gtest.h>

namespace linkcpp::test {

using namespace std::chrono_literals;
using dispatch::Dispatcher;
using dispatch::ExpertJob;
using dispatch::JobResult;
using dispatch::RowState;

inline constexpr uint32_t n_in = 3, n_out = 5, n_used = 4, n_expert = 16, layer = 2;

inline wire::SliceOffer offer(uint32_t begin, uint32_t end) {
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
    explicit Work(uint32_t n_tokens, bool sums = true, uint32_t x_width = n_in) : width(x_width) {
        for (uint32_t t = 0; t < n_tokens; ++t) {
            for (uint32_t i = 0; i < width; ++i)
                x.push_back(static_cast<float>(t % 97 + 1) + 0.25f * static_cast<float>(i));
            for (uint32_t s = 0; s < n_used; ++s) {
                expert.push_back(static_cast<int32_t>((t * 7 + s * 5 + 1) % n_expert));
                weight.push_back(0.125f * static_cast<float>(s + 1));
            }
        }
        auto program = std::make_shared<dispatch::ProgramCode>();
        program->code = {1, 2, 3};
        program->n_in = width;
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
        return expert_value(layer, static_cast<uint32_t>(expert[pair]), x[pair / n_used * size_t{width}], j);
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

    uint32_t width;
    std::vector<float> x, weight;
    std::vector<int32_t> expert;
    ExpertJob job;
};

/// Rows that are contained in others have none.
inline std::vector<float> rows_with_values(const JobResult& result) {
    std::vector<float> rows;
    for (size_t pair = 0; pair < result.state.size(); ++pair) {
        if (result.state[pair] == RowState::raw || result.state[pair] == RowState::partial)
            rows.insert(rows.end(), result.rows.begin() + static_cast<std::ptrdiff_t>(pair * n_out),
                        result.rows.begin() + static_cast<std::ptrdiff_t>((pair + 1) * n_out));
    }
    return rows;
}

class DispatcherTest : public testing::Test {
  protected:
    FakeWorker& worker(uint32_t begin, uint32_t end) {
        const net::Address address{"worker" + std::to_string(workers.size()), 1};
        addresses.push_back(address);
        workers.push_back(std::make_unique<FakeWorker>(network, address, offer(begin, end), n_out));
        return *workers.back();
    }
    void make(dispatch::PeerCheck* check = nullptr) {
        settings.numeric_class = "test";
        dispatcher = std::make_unique<Dispatcher>(network, settings, addresses, check);
    }
    /// Runs a job to its end and returns its status; `took` is virtual time.
    Status run(const Work& work, Duration limit = 60s) {
        if (!dispatcher) make();
        std::optional<Status> status;
        const Instant begin = network.sim().now();
        dispatcher->start(work.job, [&](Status s, JobResult r) {
            status = std::move(s);
            result = std::move(r);
        });
        EXPECT_TRUE(network.sim().run_until([&] { return status.has_value(); }, limit)) << "the job never ended";
        took = network.sim().now() - begin;
        return status.value_or(Status(Code::timeout, "never"));
    }

    SimNetwork network;
    dispatch::Settings settings;
    std::vector<net::Address> addresses;
    std::vector<std::unique_ptr<FakeWorker>> workers;
    std::unique_ptr<Dispatcher> dispatcher;
    JobResult result;
    Duration took{};
};

}  // namespace linkcpp::test
