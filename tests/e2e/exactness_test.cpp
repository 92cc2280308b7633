// The promise: tokens and logits are bit for bit those of a local run, however the experts are spread.

#include "e2e/swarm.h"

namespace linkcpp::test {
namespace {

struct Spread {
    const char* name;
    std::vector<std::vector<std::pair<const char*, const char*>>>
        workers;  // per worker: (layers, experts) of its slices
};

class SpreadExperts : public Swarm, public testing::WithParamInterface<Spread> {};

TEST_P(SpreadExperts, PromptAndDecodeAreBitIdentical) {
    for (const auto& slices : GetParam().workers) {
        std::vector<std::string> paths;
        for (const auto& [layers, experts] : slices)
            paths.push_back(slice(layers, experts));
        start_worker(paths);
    }
    const auto report = verify(capitals_model(), backbone(), 48, long_prompt());
    expect_exact(report, 48);
    EXPECT_EQ(report["rows_local"], 0);
    EXPECT_GT(report["rows_remote"], 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, SpreadExperts,
    testing::Values(Spread{"one_worker", {{{"", ""}}}}, Spread{"two_disjoint", {{{"", "0:8"}}, {{"", "8:16"}}}},
                    Spread{"three_disjoint", {{{"", "0:5"}}, {{"", "5:6"}}, {{"", "6:16"}}}},
                    Spread{"three_overlapping", {{{"", "0:9"}}, {{"", "4:13"}}, {{"", "7:16"}}}},
                    Spread{"by_layer", {{{"0:2", ""}}, {{"2:4", ""}}}},
                    Spread{"several_slices_each", {{{"0:1", ""}, {"1:4", "0:3"}}, {{"1:4", "3:16"}}}},
                    Spread{"replicas", {{{"", ""}}, {{"", ""}}}}),
    [](const auto& test) { return test.param.name; });

TEST_F(Swarm, OneExpertPerSliceIsBitIdentical) {
    for (int w = 0; w < 2; ++w) {
        std::vector<std::string> paths;
        for (int e = w * 8; e < w * 8 + 8; ++e)
            paths.push_back(slice("", std::to_string(e) + ":" + std::to_string(e + 1)));
        start_worker(paths);
    }
    expect_exact(verify(capitals_model(), backbone(), 16, long_prompt()), 16);
}

TEST_F(Swarm, ExpertsThatNobodyHoldsAreComputedHereBitIdentically) {
    start_worker({slice("", "0:5"), slice("1:2", "9:12")});
    const auto report = verify(capitals_model(), "", 32, long_prompt());
    expect_exact(report, 32);
    EXPECT_GT(report["rows_local"], 0);
    EXPECT_GT(report["rows_remote"], 0);
}

TEST_F(Swarm, OnlyTheChosenLayersGoRemote) {
    start_worker({slice("", "")});
    auto prompt = long_prompt();
    prompt.insert(prompt.end(), {"--layers", "1:3"});
    const auto report = verify(capitals_model(), "", 16, prompt);
    expect_exact(report, 16);
    EXPECT_EQ(report["rows_local"], 0) << "the other layers are a stock run's own, not fallback";
}

/// The control: experts that are almost the same (Q4_K weights stored again as Q8_0) must be seen as different.
TEST_F(Swarm, VerifyNoticesWeightsThatDifferByARounding) {
    const std::string q8 = folder / "q8.gguf";
    ASSERT_EQ(run({program("llama-quantize"), "--allow-requantize", capitals_model(), q8, "Q8_0"}).exit_code, 0);
    start_worker({slice("", "", q8)});
    const auto report = verify(capitals_model(), backbone(q8), 16, long_prompt());
    EXPECT_NE(report["exit_code"], 0);
    EXPECT_GT(report["logits_max_abs_diff"], 0.0) << report.dump(2);
}

class OtherTypes : public Swarm, public testing::WithParamInterface<const char*> {};

TEST_P(OtherTypes, AreBitIdenticalToo) {
    const std::string model = folder / "model.gguf";
    ASSERT_EQ(run({program("llama-quantize"), "--allow-requantize", capitals_model(), model, GetParam()}).exit_code, 0);
    start_worker({slice("", "0:8", model)});
    start_worker({slice("", "8:16", model)});
    const auto report = verify(model, backbone(model), 24, long_prompt());
    expect_exact(report, 24);
    EXPECT_EQ(report["rows_local"], 0);
}

INSTANTIATE_TEST_SUITE_P(All, OtherTypes, testing::Values("F16", "Q8_0", "Q4_0", "Q5_K_M", "IQ4_NL", "Q2_K"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace linkcpp::test
