// How two runs are compared: by hand-made tokens and logits.

#include "cmd/compare.h"
#include "cmd/verification.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>

namespace linkcpp::cmd {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TokenComparison tokens(const std::vector<int32_t>& reference, const std::vector<int32_t>& other) {
    return compare_tokens(reference, other);
}

TEST(CompareTokens, Identical) {
    const auto result = tokens({1, 2, 3}, {1, 2, 3});
    EXPECT_TRUE(result.same());
    EXPECT_EQ(result.total, 3u);
    EXPECT_EQ(result.identical, 3u);
}

TEST(CompareTokens, TheFirstDifferenceIsTold) {
    const auto result = tokens({1, 2, 3, 4}, {1, 9, 3, 8});
    EXPECT_EQ(result.first_difference, 1u);
    EXPECT_EQ(result.identical, 2u);
}

TEST(CompareTokens, AShorterOrLongerRunIsNotTheSame) {
    EXPECT_EQ(tokens({1, 2, 3}, {1, 2}).first_difference, 2u);
    EXPECT_EQ(tokens({1, 2}, {1, 2, 3}).first_difference, 2u);
    EXPECT_EQ(tokens({1, 2, 3}, {9, 2}).first_difference, 0u);
    EXPECT_TRUE(tokens({}, {}).same());
}

TEST(GreedyToken, IsTheFirstOfTheLargest) {
    EXPECT_EQ(greedy_token(std::vector<float>{1, 3, 2}), 1u);
    EXPECT_EQ(greedy_token(std::vector<float>{3, 1, 3}), 0u);
    EXPECT_EQ(greedy_token(std::vector<float>{-infinity, -5}), 1u);
}

TEST(Top2Margin, IsTheLeadOfTheLargest) {
    EXPECT_EQ(top2_margin(std::vector<float>{1, 3.5f, 2}), 1.5f);
    EXPECT_EQ(top2_margin(std::vector<float>{5, 2, 3}), 2.0f);
    EXPECT_EQ(top2_margin(std::vector<float>{4, 4, 1}), 0.0f);
    EXPECT_EQ(top2_margin(std::vector<float>{-infinity, 7}), infinity);
}

TEST(CompareLogits, TheSameBits) {
    LogitComparison comparison;
    const std::vector<float> row = {1.5f, -2.25f, -infinity, 0};
    comparison.add(row, row);
    comparison.add(row, row);
    EXPECT_TRUE(comparison.identical());
    EXPECT_EQ(comparison.positions(), 2u);
    EXPECT_EQ(comparison.max_abs_diff(), 0);
    EXPECT_EQ(comparison.cosine(), 1);
}

TEST(CompareLogits, OneBitIsADifference) {
    LogitComparison comparison;
    comparison.add(std::vector<float>{1, 2}, std::vector<float>{1, std::nextafter(2.0f, 3.0f)});
    EXPECT_FALSE(comparison.identical());
    EXPECT_GT(comparison.max_abs_diff(), 0);
    EXPECT_LT(comparison.max_abs_diff(), 1e-6);
    EXPECT_NEAR(comparison.cosine(), 1, 1e-12);
    // Zeros of two signs are equal numbers, but not the same bits.
    LogitComparison zeros;
    zeros.add(std::vector<float>{1, 0.0f}, std::vector<float>{1, -0.0f});
    EXPECT_FALSE(zeros.identical());
    EXPECT_EQ(zeros.max_abs_diff(), 0);
}

TEST(CompareLogits, TheWorstPositionCounts) {
    LogitComparison comparison;
    comparison.add(std::vector<float>{1, 0}, std::vector<float>{1, 0});
    comparison.add(std::vector<float>{1, 0}, std::vector<float>{1, 1});
    comparison.add(std::vector<float>{1, 0}, std::vector<float>{1, 0.5f});
    EXPECT_EQ(comparison.positions_identical(), 1u);
    EXPECT_EQ(comparison.max_abs_diff(), 1);
    EXPECT_NEAR(comparison.cosine(), std::sqrt(0.5), 1e-12);
}

TEST(CompareLogits, WhatIsNoNumberIsNeverClose) {
    LogitComparison comparison;
    comparison.add(std::vector<float>{1, 2}, std::vector<float>{1, std::nanf("")});
    EXPECT_FALSE(comparison.identical());
    EXPECT_EQ(comparison.max_abs_diff(), std::numeric_limits<double>::infinity());
    LogitComparison sizes;
    sizes.add(std::vector<float>{1, 2}, std::vector<float>{1});
    EXPECT_FALSE(sizes.identical());
    EXPECT_EQ(sizes.cosine(), 0);
}

/// A verification in which everything agrees, with rows from two workers of this machine's kind.
Verification agreeing() {
    Verification v;
    v.tokens = compare_tokens(std::vector<int32_t>{1, 2}, std::vector<int32_t>{1, 2});
    v.logits.add(std::vector<float>{1}, std::vector<float>{1});
    v.swarm.numeric_class = "CPU:AVX2";
    v.swarm.totals.pairs_remote = 5;
    v.swarm.totals.pairs_by_worker = {{"a:1", 2}, {"b:2", 3}};
    v.swarm.totals.class_by_worker = {{"a:1", "CPU:AVX2"}, {"b:2", "CPU:AVX2"}};
    return v;
}

// After the first difference two texts have nothing to do with each other; how often classes disagree is seen along one.
TEST(Verification, EveryFlipAlongTheSameTokensIsTold) {
    const auto run = [](std::vector<int32_t> tokens, const std::vector<float>& logits, int descriptor) {
        EXPECT_EQ(write(descriptor, logits.data(), logits.size() * sizeof(float)),
                  static_cast<ssize_t>(logits.size() * sizeof(float)));
        Trace trace;
        trace.prompt = {0, 0};
        trace.pieces.resize(tokens.size());
        trace.tokens = std::move(tokens);
        trace.n_vocab = 2;
        return trace;
    };
    const int a = memfd_create("reference", 0), b = memfd_create("swarm", 0);
    // The first position belongs to the prompt: which token would follow there is not asked.
    auto reference = run({1, 0, 1}, {1, 0, 0, 1, 1, 0.75f, 0, 1}, a);
    auto swarm = run({1, 1, 1}, {0, 1, 0, 1, 1, 1.5f, 0, 1}, b);
    const auto v = compare_traces(std::move(reference), a, std::move(swarm), b);
    ASSERT_TRUE(v.ok()) << v.status().message();
    ASSERT_EQ(v->flips.size(), 1u);
    EXPECT_EQ(v->flips[0].position, 1u);
    EXPECT_EQ(v->flips[0].reference_token, 0);
    EXPECT_EQ(v->flips[0].swarm_token, 1);
    EXPECT_FLOAT_EQ(v->flips[0].reference_margin, 0.25f);
    EXPECT_FLOAT_EQ(v->flips[0].swarm_margin, 0.5f);
    close(a);
    close(b);
}

TEST(Verification, AgreementIsSuccess) { EXPECT_EQ(agreeing().failure(), std::nullopt); }

TEST(Verification, ADifferentTokenIsAFailure) {
    Verification v = agreeing();
    v.tokens = compare_tokens(std::vector<int32_t>{1, 2}, std::vector<int32_t>{1, 3});
    v.divergence = Divergence{1, 2, 3, "a", "b", 0.1f, 0.2f};
    ASSERT_TRUE(v.failure());
    EXPECT_NE(v.failure()->find("1 of 2 tokens"), std::string::npos) << *v.failure();
    EXPECT_NE(v.failure()->find("at token 2"), std::string::npos) << *v.failure();
}

TEST(Verification, LogitsMustAgreeOnlyAmongEquals) {
    Verification v = agreeing();
    v.logits.add(std::vector<float>{1}, std::vector<float>{1.5f});
    EXPECT_TRUE(v.failure());
    v.exact_mode = false;
    EXPECT_FALSE(v.failure());
    v.exact_mode = true;
    v.swarm.totals.class_by_worker["b:2"] = "CPU:NEON";
    EXPECT_FALSE(v.one_numeric_class());
    EXPECT_FALSE(v.failure());
    // A worker that computed nothing decides nothing.
    v.swarm.totals.pairs_by_worker["b:2"] = 0;
    EXPECT_TRUE(v.failure());
}

TEST(Verification, WithoutAWorkerNothingIsVerified) {
    Verification v = agreeing();
    v.swarm.totals = {};
    v.swarm.totals.pairs_local = 5;
    ASSERT_TRUE(v.failure());
    EXPECT_NE(v.failure()->find("nothing was verified"), std::string::npos);
}

}  // namespace
}  // namespace linkcpp::cmd
