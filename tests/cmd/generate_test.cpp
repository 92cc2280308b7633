// `linkcpp generate` and `linkcpp verify` as a user runs them, as far as it goes without workers.

#include "moe/files.h"
#include "support/process.h"

#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace linkcpp {
namespace {

using nlohmann::json;
using test::Finished;
using test::TempFolder;

const std::string model = test::capitals_model();
const std::string paris = " Paris. France is a country in Western Europe.";

Finished linkcpp(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LINKCPP_BIN_DIR "/linkcpp");
    return test::run(std::move(arguments));
}

void expect_failure(const Finished& finished, int exit_code, const std::string& saying) {
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    EXPECT_NE(finished.err.find(saying), std::string::npos) << finished.err;
    EXPECT_EQ(finished.out, "");
}

TEST(GenerateCommand, DecodesWithoutWorkers) {
    const Finished finished = linkcpp({"generate", "-m", model, "-p", "The capital of France is", "-n", "12"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_TRUE(finished.out.starts_with(" Paris. ")) << finished.out;
    EXPECT_NE(finished.err.find("12 generated at"), std::string::npos) << finished.err;
}

TEST(GenerateCommand, TellsAsJson) {
    const Finished finished =
        linkcpp({"generate", "-m", model, "-p", "The capital of France is", "-n", "12", "--json"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json record = json::parse(finished.out);
    EXPECT_EQ(record.at("tokens").size(), 12u);
    EXPECT_EQ(record.at("stopped_by"), "length");
    EXPECT_TRUE(record.at("text").get<std::string>().starts_with(" Paris. "));
    EXPECT_GT(record.at("tps").get<double>(), 0);
    EXPECT_FALSE(record.contains("rows_remote"));
}

TEST(GenerateCommand, ReadsThePromptFromAFile) {
    const TempFolder folder;
    std::ofstream(folder / "prompt") << "The capital of France is\n";
    const Finished finished = linkcpp({"generate", "-m", model, "-f", folder / "prompt", "-n", "4"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_TRUE(finished.out.starts_with(" Paris")) << finished.out;
}

TEST(GenerateCommand, BatchesDoNotChangeTheText) {
    const std::vector<std::string> whole = {"generate", "-m", model, "-p", "The capital of France is", "-n", "24"};
    std::vector<std::string> cut = whole;
    cut.insert(cut.end(), {"-b", "3", "-ub", "2", "-t", "1"});
    EXPECT_EQ(linkcpp(cut).out, linkcpp(whole).out);
}

TEST(GenerateCommand, StopsWhereTheContextEnds) {
    const Finished finished = linkcpp({"generate", "-m", model, "-p", "The capital of France is", "-n", "1000", "-c",
                                       "256", "--ignore-eos", "--json"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json record = json::parse(finished.out);
    EXPECT_EQ(record.at("stopped_by"), "context");
    EXPECT_EQ(record.at("tokens").size(), 256 - record.at("prompt_tokens").get<size_t>() + 1);
}

TEST(GenerateCommand, ASeedFixesTheChoices) {
    const std::vector<std::string> arguments = {"generate", "-m", model,    "-p",  "The",
                                                "-n",       "24", "--temp", "1.5", "--seed"};
    const auto with_seed = [&](const char* seed) {
        std::vector<std::string> all = arguments;
        all.emplace_back(seed);
        return linkcpp(all).out;
    };
    EXPECT_EQ(with_seed("7"), with_seed("7"));
    EXPECT_NE(with_seed("7"), with_seed("8"));
}

TEST(GenerateCommand, SaysWhatIsWrong) {
    const TempFolder folder;
    expect_failure(linkcpp({"generate", "-m", folder / "none.gguf", "-p", "x"}), 1, "none.gguf");
    expect_failure(linkcpp({"generate", "-m", model, "-f", folder / "none"}), 1, "cannot be read");
    std::ofstream(folder / "noise.gguf") << "this is no model";
    expect_failure(linkcpp({"generate", "-m", folder / "noise.gguf", "-p", "x"}), 1, "noise.gguf");
    const std::string long_prompt(8000, 'x');
    expect_failure(linkcpp({"generate", "-m", model, "-p", long_prompt}), 1, "tokens of context");
}

TEST(GenerateCommand, RefusesABackboneFileWithoutWorkers) {
    const TempFolder folder;
    ASSERT_EQ(linkcpp({"slice", model, "--backbone", "-o", folder / "backbone.gguf"}).exit_code, 0);
    expect_failure(linkcpp({"generate", "-m", folder / "backbone.gguf", "-p", "x"}), 1, "--workers");
}

TEST(GenerateCommand, AnExpertThatNobodyHoldsEndsTheRun) {
    const TempFolder folder;
    ASSERT_EQ(linkcpp({"slice", model, "--backbone", "-o", folder / "backbone.gguf"}).exit_code, 0);
    // Port 1 refuses connections wherever tests run.
    expect_failure(linkcpp({"generate", "-m", folder / "backbone.gguf", "-p", "The capital", "-n", "4", "--workers",
                            "127.0.0.1:1"}),
                   1, "no worker computes experts");
}

TEST(GenerateCommand, LocalWeightsStandInForAbsentWorkers) {
    const std::vector<std::string> arguments = {"generate", "-m", model, "-p", "The capital of France is", "-n", "24"};
    std::vector<std::string> absent = arguments;
    absent.insert(absent.end(), {"--workers", "127.0.0.1:1"});
    const Finished finished = linkcpp(absent);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    EXPECT_EQ(finished.out, linkcpp(arguments).out);
}

TEST(CommandLine, WhatMakesNoSenseEndsBeforeAnythingRuns) {
    expect_failure(linkcpp({"generate"}), 2, "--model");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "--workers", "nowhere"}), 2, "HOST:PORT");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "--workers", "h:1", "--layers", "3-4"}), 2, "3-4");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "--workers", "h:1", "--fallback", "some"}), 2, "some");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "--workers", "h:1", "--expert-cache", "much"}), 2,
                   "much");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "--fallback", "none"}), 2, "--workers");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "-f", "y"}), 2, "excludes");
    expect_failure(linkcpp({"generate", "-m", model, "-p", "x", "-t", "0"}), 2, "--threads");
    expect_failure(linkcpp({"verify", "-m", model}), 2, "--workers");
    expect_failure(linkcpp({"verify", "-m", model, "--workers", "h:1", "-n", "0"}), 2, "--predict");
}

TEST(VerifyCommand, NeedsTheFullModelAndAWorker) {
    const TempFolder folder;
    ASSERT_EQ(linkcpp({"slice", model, "--backbone", "-o", folder / "backbone.gguf"}).exit_code, 0);
    expect_failure(linkcpp({"verify", "-m", folder / "backbone.gguf", "--workers", "127.0.0.1:1"}), 1, "backbone file");
    expect_failure(linkcpp({"verify", "-m", model, "-n", "600", "--workers", "127.0.0.1:1"}), 1, "tokens of context");
    const Finished alone = linkcpp({"verify", "-m", model, "-n", "4", "--workers", "127.0.0.1:1", "--json"});
    EXPECT_EQ(alone.exit_code, 1);
    EXPECT_NE(alone.err.find("nothing was verified"), std::string::npos) << alone.err;
    const json record = json::parse(alone.out);
    EXPECT_EQ(record.at("tokens_identical"), 4);
    EXPECT_EQ(record.at("rows_remote"), 0);
    EXPECT_EQ(record.at("logits_max_abs_diff"), 0);
}

#ifdef LINKCPP_STOCK_COMPLETION
TEST(GenerateCommand, GivesTheTextOfLlamaCppItself) {
    const auto stock = [] {
        const Finished finished =
            test::run({LINKCPP_BIN_DIR "/llama-completion", "-m", model, "-p", "The capital of France is", "-n", "32",
                       "--temp", "0", "-no-cnv", "--no-display-prompt", "--no-warmup"});
        EXPECT_EQ(finished.exit_code, 0) << finished.err;
        return finished.out;
    };
    // The stock tool may lose the end of its text when it exits, so the longer of two runs counts.
    const std::string first = stock(), second = stock();
    const Finished ours = linkcpp({"generate", "-m", model, "-p", "The capital of France is", "-n", "32"});
    const auto trimmed = [](std::string text) {
        while (text.ends_with('\n') || text.ends_with(' '))
            text.pop_back();
        return text;
    };
    const std::string end_of_text = " [end of text]";
    std::string expected = trimmed(first.size() > second.size() ? first : second);
    if (expected.ends_with(end_of_text)) expected = trimmed(expected.substr(0, expected.size() - end_of_text.size()));
    EXPECT_EQ(trimmed(ours.out), expected);
    EXPECT_TRUE(ours.out.starts_with(paris)) << ours.out;
}
#endif

}  // namespace
}  // namespace linkcpp
