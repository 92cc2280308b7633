// Ten thousand nodes and a large model: everything stays consistent, and the time that answers take is printed, for
// docs/BENCHMARKS.md. Nothing here is asserted about time.
#include "hub/market_rig.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::hub::market {
namespace {

TEST(MarketLoad, TenThousandNodes) {
    constexpr uint32_t n_layers = 48, n_expert = 256, n_nodes = 10'000, n_replicas = 3;
    ManualClock clock;
    const SteadyClock real;
    Market market(clock, {});
    market.add_model(even_model("m", n_layers, n_expert, 6 << 20, n_replicas));
    const uint64_t budget = (n_layers * n_expert * n_replicas + n_nodes - 1) / n_nodes;

    std::vector<Duration> volunteering, beating, asking;
    const auto timed = [&](std::vector<Duration>& times, auto&& work) {
        const Instant begin = real.now();
        work();
        times.push_back(real.now() - begin);
    };
    std::vector<Heartbeat> heartbeats(n_nodes);
    for (uint32_t i = 0; i < n_nodes; ++i) {
        Result<Lease> lease(Code::not_found, "");
        timed(volunteering, [&] { lease = market.volunteer(numbered("node", i), up_to_experts(budget)); });
        ASSERT_TRUE(lease.ok());
        heartbeats[i] = serving({lease->what});
        ASSERT_TRUE(market.heartbeat(numbered("node", i), heartbeats[i]).ok());
    }
    // Five minutes: every node tells every 5 s, some leave and come back, and demand is asked for ten times a second.
    constexpr uint32_t per_tick = n_nodes / 50;
    for (uint32_t tick = 0; tick < 3000; ++tick) {
        clock.time += 100ms;
        for (uint32_t i = 0; i < per_tick; ++i) {
            const uint32_t node = (tick % 50) * per_tick + i;
            const bool silent = (node + tick / 600) % 97 == 0;
            if (silent) continue;
            timed(beating, [&] { ASSERT_TRUE(market.heartbeat(numbered("node", node), heartbeats[node]).ok()); });
        }
        timed(asking, [&] {
            const auto segments = market.demand("m");
            uint64_t experts = 0;
            for (const DemandSegment& segment : *segments)
                experts += segment.experts.size();
            ASSERT_EQ(experts, n_layers * n_expert);
        });
    }
    const auto show = [](const char* what, std::vector<Duration>& times) {
        std::sort(times.begin(), times.end());
        const auto at = [&](double share) {
            return microseconds(times[static_cast<size_t>(share * static_cast<double>(times.size() - 1))]);
        };
        fmt::print("{}: p50 {:.1f} us, p99 {:.1f} us, most {:.1f} us ({} of them)\n", what, at(0.5), at(0.99), at(1),
                   times.size());
    };
    show("volunteer", volunteering);
    show("heartbeat", beating);
    show("demand", asking);
    EXPECT_GT(market.n_nodes(), n_nodes * 9 / 10);
}

}  // namespace
}  // namespace linkcpp::hub::market
