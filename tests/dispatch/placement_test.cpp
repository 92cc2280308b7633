#include "dispatch/placement.h"

#include "dispatch/latency.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <random>

namespace linkcpp::dispatch {
namespace {

using namespace std::chrono_literals;

/// Each slice at a worker of its own, unless `peer` is given.
Holder holder(uint32_t begin, uint32_t end, bool same_class = true, Duration expected = 1ms, int peer = -1) {
    static uint32_t next = 1000;
    return {peer < 0 ? next++ : static_cast<uint32_t>(peer), 0, begin, end, same_class, expected};
}

TEST(Placement, OneHolderThatCoversEverythingBeatsTwoThatShareIt) {
    const std::vector<uint32_t> experts = {1, 5, 9};
    EXPECT_EQ(place(experts, std::vector{holder(0, 8), holder(8, 16), holder(0, 16)}), (std::vector{2, 2, 2}));
}

TEST(Placement, WhatNobodyHoldsIsSaid) {
    const std::vector<uint32_t> experts = {1, 20};
    EXPECT_EQ(place(experts, std::vector{holder(0, 16)}), (std::vector{0, no_holder}));
    EXPECT_EQ(place(experts, {}), (std::vector{no_holder, no_holder}));
}

TEST(Placement, BetweenReplicasTheSameClassWinsThenTheFasterOne) {
    const std::vector<uint32_t> experts = {3};
    EXPECT_EQ(place(experts, std::vector{holder(0, 16, false, 1ms), holder(0, 16, true, 9ms)}), std::vector{1});
    EXPECT_EQ(place(experts, std::vector{holder(0, 16, true, 9ms), holder(0, 16, true, 1ms)}), std::vector{1});
    EXPECT_EQ(place(experts, std::vector{holder(0, 16), holder(0, 16)}), std::vector{0});
}

TEST(Placement, EveryExpertHasOneHolder) {
    const std::vector<uint32_t> experts = {0, 4, 6, 9, 12};
    EXPECT_EQ(place(experts, std::vector{holder(0, 7), holder(5, 16)}), (std::vector{0, 0, 0, 1, 1}));
}

TEST(Placement, SlicesOfOneWorkerCountTogether) {
    const std::vector<uint32_t> experts = {1, 5, 9, 13};
    const std::vector holders = {holder(0, 11), holder(0, 8, true, 1ms, 7), holder(8, 16, true, 1ms, 7)};
    EXPECT_EQ(place(experts, holders), (std::vector{1, 1, 2, 2})) << "one worker, not two";
    EXPECT_EQ(place(experts, std::vector{holders[1], holders[2], holder(0, 16, true, 9ms)}), (std::vector{2, 2, 2, 2}))
        << "one slice, not two";
}

TEST(LatencyWindow, QuantilesOfTheLastDurations) {
    LatencyWindow window;
    EXPECT_EQ(window.quantile(0.5), Duration::zero());
    for (int i = 0; i < 1000; ++i)
        window.add(1s);
    for (int i = 1; i <= 256; ++i)
        window.add(std::chrono::milliseconds(i));
    EXPECT_NEAR(milliseconds(window.quantile(0.5)), 128, 1);
    EXPECT_EQ(milliseconds(window.quantile(1.0)), 256) << "what is older is forgotten";
}

TEST(LatencyWindow, TheOrderInWhichTheyComeIsOfNoMatter) {
    LatencyWindow window;
    std::minstd_rand random(7);
    std::deque<Duration> last;
    for (int i = 0; i < 2000; ++i) {
        last.emplace_back(random() % 100);  // many of them equal
        window.add(last.back());
        if (last.size() > 256) last.pop_front();
        std::vector<Duration> sorted(last.begin(), last.end());
        std::sort(sorted.begin(), sorted.end());
        ASSERT_EQ(window.quantile(0.0), sorted.front());
        ASSERT_EQ(window.quantile(0.5), sorted[sorted.size() / 2]) << i;
        ASSERT_EQ(window.quantile(1.0), sorted.back());
        ASSERT_EQ(window.count(), sorted.size());
    }
}

}  // namespace
}  // namespace linkcpp::dispatch
