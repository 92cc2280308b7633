// Exactness over architectures and tensor types: random models with f32 backbones, where an error of one ulp shows, each
// compared with a stock run of the same file: a prompt of more than 64 tokens with all logits, then greedy decode.

#include "e2e/swarm.h"

#include <fmt/format.h>

namespace linkcpp::test {
namespace {

class Matrix : public Swarm {
  protected:
    std::string make(const std::string& name, const std::vector<std::string>& options) {
        const std::string path = folder / (name + ".gguf");
        std::vector<std::string> command = {program("linkcpp-make-model"), "--quiet", "-o", path};
        command.insert(command.end(), options.begin(), options.end());
        const Finished made = run(command);
        EXPECT_EQ(made.exit_code, 0) << made.err;
        return path;
    }
    /// Three workers: a single expert, a few, and the rest with some of them again.
    void start_three(const std::string& model) {
        for (const char* experts : {"0:1", "1:5", "4:8"})
            start_worker({slice("", experts, model)});
    }
    static std::vector<std::string> with_prompt(std::vector<std::string> more = {}) {
        std::vector<std::string> options = {"-p", "The quick brown fox jumps over the lazy dog at noon, twice."};
        options.insert(options.end(), more.begin(), more.end());
        return options;
    }
    void expect_remote_and_exact(const std::string& model, const std::vector<std::string>& more = {}) {
        const auto report = verify(model, backbone(model), 16, with_prompt(more));
        expect_exact(report, 16);
        EXPECT_EQ(report["rows_local"], 0) << report.dump(2);
        EXPECT_GT(report["rows_remote"], 0) << report.dump(2);
    }
};

/// One layer of experts for every type, so that one decode covers them all.
std::vector<std::string> every_type(int layers_per_moe_layer) {
    const std::vector<std::string> types = {"f32",  "f16",  "bf16",   "q8_0",  "q4_K", "q5_K",
                                            "q6_K", "q4_0", "iq4_nl", "mxfp4", "q2_K"};
    const int n_layer = static_cast<int>(types.size()) * layers_per_moe_layer;
    std::vector<std::string> options = {"--layers", std::to_string(n_layer)};
    for (int layer = 0; layer < n_layer; ++layer) {
        const std::string& type = types[static_cast<size_t>(layer / layers_per_moe_layer)];
        options.insert(options.end(), {"--type", fmt::format("blk\\.{}\\.ffn_.*exps\\.weight={}", layer, type)});
    }
    return options;
}

class Architecture : public Matrix, public testing::WithParamInterface<const char*> {};

TEST_P(Architecture, IsExactWithExpertsOfEveryType) {
    const std::string arch = GetParam();
    auto options = every_type(arch == "llama4" ? 2 : 1);  // llama4 has experts in every other layer
    options.insert(options.end(), {"--arch", arch});
    const std::string model = make(arch, options);
    start_three(model);
    expect_remote_and_exact(model);
}

std::string test_name(std::string name) {
    for (char& c : name)
        if (isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    return name;
}

INSTANTIATE_TEST_SUITE_P(All, Architecture,
                         testing::Values("llama", "llama4", "qwen2moe", "qwen3moe", "qwen3next", "qwen35moe", "gpt-oss",
                                         "deepseek2", "glm4moe", "olmoe", "granitemoe", "dbrx"),
                         [](const auto& test) { return test_name(test.param); });

struct Variant {
    const char* name;
    std::vector<std::string> model, run;
};

class Variants : public Matrix, public testing::WithParamInterface<Variant> {};

TEST_P(Variants, AreExact) {
    const std::string model = make("model", GetParam().model);
    start_three(model);
    expect_remote_and_exact(model, GetParam().run);
}

INSTANTIATE_TEST_SUITE_P(
    All, Variants,
    testing::Values(
        Variant{"merged_gate_and_up", {"--arch", "qwen3moe", "--merged", "--expert-type", "q4_K"}, {}},
        Variant{"merged_in_deepseek", {"--arch", "deepseek2", "--merged", "--expert-type", "q8_0"}, {}},
        Variant{"scale_per_expert", {"--arch", "qwen3moe", "--scales", "--expert-type", "q4_0"}, {}},
        Variant{"layers_without_experts", {"--arch", "glm4moe", "--dense-layers", "1", "--layers", "3"}, {}},
        Variant{"biases_and_clamp", {"--arch", "gpt-oss", "--expert-type", "mxfp4"}, {"--ub", "7"}},
        Variant{"ubatch_of_1", {"--arch", "qwen35moe", "--expert-type", "iq4_nl"}, {"--ub", "1"}},
        Variant{"ubatch_of_7", {"--arch", "qwen35moe", "--expert-type", "q5_K"}, {"--ub", "7"}},
        Variant{"ubatch_of_16", {"--arch", "qwen3moe", "--expert-type", "q2_K"}, {"--ub", "16"}},
        Variant{"ubatch_of_512", {"--arch", "llama4", "--expert-type", "q6_K"}, {"--ub", "512"}},
        Variant{
            "kernels_that_depend_on_row_counts", {"--arch", "qwen3moe", "--expert-type", "iq2_xxs"}, {"--ub", "16"}},
        Variant{"flash_attention_on", {"--arch", "qwen3moe", "--expert-type", "q4_K"}, {"--fa", "on"}},
        Variant{"flash_attention_off", {"--arch", "qwen3moe", "--expert-type", "q4_K"}, {"--fa", "off"}},
        Variant{"flash_attention_off_gpt", {"--arch", "gpt-oss", "--expert-type", "q8_0"}, {"--fa", "off"}},
        Variant{"rows_that_are_no_multiple_of_256",
                {"--arch", "qwen3moe", "--embd", "96", "--heads", "2", "--head-dim", "48", "--ff-exp", "160",
                 "--expert-type", "q8_0"},
                {}},
        Variant{"one_expert_per_token", {"--arch", "qwen3moe", "--used", "1", "--expert-type", "q4_K"}, {}},
        Variant{"all_experts_per_token", {"--arch", "qwen3moe", "--used", "8", "--expert-type", "q4_0"}, {}}),
    [](const auto& test) { return std::string(test.param.name); });

/// The width of the 122B, top 8, a prompt in one batch of nearly 4096 tokens: 50 MB of activations, 32,000 pairs.
TEST_F(Matrix, APromptOf4000TokensInOneBatchIsExact) {
    const std::string model =
        make("wide", {"--arch", "qwen3moe", "--layers", "1", "--embd", "3072", "--heads", "24", "--heads-kv", "8",
                      "--experts", "32", "--used", "8", "--expert-type", "q4_K", "--dense-type", "q8_0"});
    start_worker({slice("", "", model)});
    std::string prompt;
    while (prompt.size() < 4000)
        prompt += "abcdefgh";
    const auto report = verify(model, backbone(model), 2, {"-p", prompt, "-b", "4096", "--ub", "4096"});
    expect_exact(report, 2);
    EXPECT_EQ(report["rows_local"], 0) << report.dump(2);
}

class Sequences : public Matrix, public testing::WithParamInterface<const char*> {};

/// Four sequences in one batch, in each of two contexts that compute at the same time: every logit as in a stock run.
TEST_P(Sequences, FourAtOnceInTwoContextsAreExact) {
    const std::string model = make("model", {"--arch", GetParam(), "--expert-type", "q4_K"});
    start_three(model);
    const std::string expected = folder / "expected", logits = folder / "logits", stats = folder / "stats";
    ASSERT_EQ(run({program("sequences"), model, expected}).exit_code, 0);
    const Environment environment = {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                                     {"LINKCPP_WORKERS", all_workers()},
                                     {"LINKCPP_FALLBACK", "none"},
                                     {"LINKCPP_STATS", stats}};
    const Finished done = run({program("sequences"), model, logits}, environment);
    ASSERT_EQ(done.exit_code, 0) << done.err;
    EXPECT_GT(read_file(expected).size(), 1000u);
    EXPECT_EQ(read_file(logits), read_file(expected));
    EXPECT_FALSE(read_file(stats).empty()) << "nothing went through the backend";
}

INSTANTIATE_TEST_SUITE_P(All, Sequences, testing::Values("qwen3moe", "qwen35moe", "gpt-oss"),
                         [](const auto& test) { return test_name(test.param); });

/// Split models (-00001-of-00003.gguf) are cut as whole ones are.
TEST_F(Matrix, ASplitModelIsExact) {
    make("split", {"--arch", "qwen3moe", "--parts", "3", "--expert-type", "q4_K", "--layers", "3"});
    const std::string model = folder / "split-00001-of-00003.gguf";
    start_three(model);
    const auto report = verify(model, "", 16, with_prompt({"--fallback", "none"}));
    expect_exact(report, 16);
    EXPECT_EQ(report["rows_local"], 0) << report.dump(2);
}

}  // namespace
}  // namespace linkcpp::test
