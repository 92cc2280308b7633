// `linkcpp inspect` and `linkcpp slice` as a user runs them.

#include "moe/files.h"
#include "moe/gguf_bytes.h"
#include "support/process.h"

#include <csignal>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace linkcpp {
namespace {

using nlohmann::json;
using test::Finished;
using test::TempFolder;

Finished linkcpp(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), LINKCPP_BIN_DIR "/linkcpp");
    return test::run(std::move(arguments));
}

const std::string model = test::capitals_model();

void expect_failure(const Finished& finished, int exit_code, const std::string& saying) {
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    EXPECT_NE(finished.err.find(saying), std::string::npos) << finished.err;
    EXPECT_EQ(finished.out, "");
}

TEST(InspectCommand, TellsTheAnatomyOfAModel) {
    const Finished finished = linkcpp({"inspect", model});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    for (const char* fact :
         {"mixture-of-experts model", "qwen35moe", "Capitals MoE 15M", "9.39 MB", "with experts: 0-3",
          "16 per layer, 4 used", "n_ff_exp 256", "81.6 %", "ffn_down_exps.weight", "2 x q4_K, 2 x q6_K"}) {
        EXPECT_NE(finished.out.find(fact), std::string::npos) << fact << " is not in\n" << finished.out;
    }
}

TEST(InspectCommand, SpeaksJson) {
    const Finished finished = linkcpp({"inspect", model, "--json"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json record = json::parse(finished.out);
    EXPECT_EQ(record["kind"], "model");
    EXPECT_EQ(record["architecture"], "qwen35moe");
    EXPECT_EQ(record["n_layer"], 4);
    EXPECT_EQ(record["n_layer_expert"], 4);
    EXPECT_EQ(record["n_expert"], 16);
    EXPECT_EQ(record["n_expert_used"], 4);
    EXPECT_EQ(record["n_embd"], 256);
    EXPECT_EQ(record["n_ff_exp"], 256);
    EXPECT_NEAR(record["expert_share"], 0.816, 0.001);
    EXPECT_EQ(record["expert_bytes_min"], 3 * 36864);
    EXPECT_EQ(record["tensors"]["ffn_down_exps.weight"]["types"]["q6_K"], 2);
    EXPECT_EQ(record["layers"].size(), 4u);
}

TEST(InspectCommand, KnowsSlicesAndBackbones) {
    const TempFolder folder;
    ASSERT_EQ(linkcpp({"slice", model, "--layers", "1:3", "--experts", "4:", "-o", folder / "s.gguf"}).exit_code, 0);
    ASSERT_EQ(linkcpp({"slice", model, "--backbone", "-o", folder / "b.gguf"}).exit_code, 0);
    EXPECT_NE(linkcpp({"inspect", folder / "s.gguf"}).out.find("slice: layers 1:3, experts 4:16 of 16"),
              std::string::npos);
    EXPECT_NE(linkcpp({"inspect", folder / "b.gguf"}).out.find("experts were left out"), std::string::npos);
    const json slice = json::parse(linkcpp({"inspect", "--json", "--check", folder / "s.gguf"}).out);
    EXPECT_EQ(slice["kind"], "slice");
    EXPECT_EQ(slice["expert_begin"], 4);
    const json backbone = json::parse(linkcpp({"inspect", "--json", folder / "b.gguf"}).out);
    EXPECT_EQ(backbone["kind"], "backbone");
    EXPECT_EQ(backbone["fingerprint"], slice["fingerprint"]);
    EXPECT_EQ(backbone["n_expert"], 16);
}

TEST(InspectCommand, FindsADamagedExpert) {
    const TempFolder folder;
    ASSERT_EQ(linkcpp({"slice", model, "--layers", "0", "-o", folder / "s.gguf"}).exit_code, 0);
    Bytes bytes = test::read_file(folder / "s.gguf");
    bytes[bytes.size() - 1000] ^= 4;
    test::write_file(folder / "s.gguf", bytes);
    EXPECT_EQ(linkcpp({"inspect", folder / "s.gguf"}).exit_code, 0);
    expect_failure(linkcpp({"inspect", folder / "s.gguf", "--check"}), 1,
                   "expert 15 of blk.0.ffn_down_exps.weight is damaged");
}

TEST(InspectCommand, SaysWhatIsWrongWithAFile) {
    const TempFolder folder;
    Bytes bytes = test::read_file(model);
    bytes.resize(bytes.size() / 2);
    test::write_file(folder / "half.gguf", bytes);
    test::write_file(folder / "text.gguf", Bytes{'h', 'e', 'l', 'l', 'o'});
    expect_failure(linkcpp({"inspect", folder / "none.gguf"}), 1, "no such file");
    expect_failure(linkcpp({"inspect", folder / "half.gguf"}), 1, "cut short");
    expect_failure(linkcpp({"inspect", folder / "text.gguf"}), 1, "not a GGUF file");
    expect_failure(linkcpp({"inspect", folder.path()}), 1, "is not a file");
}

TEST(InspectCommand, NamesFromAFileCannotSteerTheTerminal) {
    const TempFolder folder;
    test::GgufBytes gguf = test::small_moe();
    gguf.without("general.name").text("general.name", "\033[31mred\xff\n");
    test::write_file(folder / "m.gguf", gguf.bytes());
    const Finished text = linkcpp({"inspect", folder / "m.gguf"});
    EXPECT_EQ(text.exit_code, 0);
    EXPECT_EQ(text.out.find('\033'), std::string::npos);
    EXPECT_TRUE(json::accept(linkcpp({"inspect", "--json", folder / "m.gguf"}).out));
}

TEST(SliceCommand, ReportsWhatItWrote) {
    const TempFolder folder;
    const Finished finished =
        linkcpp({"slice", model, "--layers", "1:3", "--experts", "4:9", "-o", folder / "s.gguf", "--json"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json record = json::parse(finished.out);
    EXPECT_EQ(record["layer_begin"], 1);
    EXPECT_EQ(record["expert_end"], 9);
    EXPECT_EQ(record["bytes"], std::filesystem::file_size(folder / "s.gguf"));
    EXPECT_EQ(record["digest"].get<std::string>().size(), 64u);
    EXPECT_EQ(folder.n_files(), 1u);
}

TEST(SliceCommand, ReportsTheBackbone) {
    const TempFolder folder;
    const Finished finished = linkcpp({"slice", model, "--backbone", "-o", folder / "b.gguf", "--json"});
    ASSERT_EQ(finished.exit_code, 0) << finished.err;
    const json record = json::parse(finished.out);
    EXPECT_EQ(record["bytes"], std::filesystem::file_size(model));
    EXPECT_EQ(record["paths"][0], folder / "b.gguf");
    EXPECT_EQ(record["bytes_left_out"], 7618560);
}

TEST(SliceCommand, RefusesWhatTheModelDoesNotHave) {
    const TempFolder folder;
    const std::string out = folder / "s.gguf";
    expect_failure(linkcpp({"slice", model, "--layers", "3:9", "-o", out}), 1, "the model has 4 layers");
    expect_failure(linkcpp({"slice", model, "--experts", "16:", "-o", out}), 1, "the model has 16 experts");
    expect_failure(linkcpp({"slice", model, "--layers", "2:2", "-o", out}), 2, "is not a range");
    test::GgufBytes dense = test::small_moe();
    dense.tensors.resize(3);
    test::write_file(folder / "dense.gguf", dense.bytes());
    expect_failure(linkcpp({"slice", folder / "dense.gguf", "-o", out}), 1, "dense model");
    expect_failure(linkcpp({"slice", folder / "dense.gguf", "--backbone", "-o", out}), 1, "dense model");
    EXPECT_EQ(folder.n_files(), 1u);
}

TEST(SliceCommand, RefusesToWriteOverTheModel) {
    const TempFolder folder;
    std::filesystem::copy_file(model, folder / "m.gguf");
    for (const char* flag : {"--json", "--backbone"}) {
        expect_failure(linkcpp({"slice", folder / "m.gguf", flag, "-o", folder / "m.gguf"}), 1, "is the model itself");
    }
    EXPECT_EQ(test::read_file(folder / "m.gguf"), test::read_file(model));
}

TEST(SliceCommand, UsageErrorsEndWithTwo) {
    const TempFolder folder;
    const std::string out = folder / "s.gguf";
    expect_failure(linkcpp({}), 2, "subcommand");
    expect_failure(linkcpp({"slice", model}), 2, "--output");
    expect_failure(linkcpp({"slice", "-o", out}), 2, "model");
    for (const char* range : {"a:b", "1:2:3", "-1:2", "", "1-2", "99999999999:"}) {
        EXPECT_EQ(linkcpp({"slice", model, std::string("--layers=") + range, "-o", out}).exit_code, 2) << range;
    }
    EXPECT_EQ(linkcpp({"slice", model, "--backbone", "--layers", "0:1", "-o", out}).exit_code, 2);
    EXPECT_EQ(linkcpp({"slice", "--help"}).exit_code, 0);
    EXPECT_NE(linkcpp({"slice", "--help"}).out.find("Examples:"), std::string::npos);
    EXPECT_EQ(folder.n_files(), 0u);
}

TEST(SliceCommand, AFullDiskLeavesNothing) {
    const TempFolder folder;
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit{2000000, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);  // the program inherits it
    const Finished finished = linkcpp({"slice", model, "-o", folder / "s.gguf"});
    setrlimit(RLIMIT_FSIZE, &before);
    expect_failure(finished, 1, "nothing was left behind");
    EXPECT_EQ(folder.n_files(), 0u);
}

/// A model that is large enough to be interrupted in: 2 GB of experts, all of them a hole of the test's own.
std::string large_model(const TempFolder& folder) {
    test::GgufBytes gguf;
    gguf.text("general.architecture", "testmoe").u32("testmoe.block_count", 1).u32("testmoe.expert_count", 64);
    gguf.tensors.push_back({"blk.0.ffn_up_exps.weight", {2048, 4096, 64}, 0, {}, {}, {}});
    const Bytes header = gguf.bytes();
    test::write_file(folder / "large.gguf", header);
    std::filesystem::resize_file(folder / "large.gguf", header.size() + uint64_t{2048} * 4096 * 64 * 4);
    return folder / "large.gguf";
}

TEST(SliceCommand, CtrlCLeavesNothing) {
    const TempFolder folder;
    const std::string large = large_model(folder);
    for (const std::vector<std::string>& how : {std::vector<std::string>{}, {"--backbone"}}) {
        std::vector<std::string> arguments = {LINKCPP_BIN_DIR "/linkcpp", "slice", large, "-o", folder / "out.gguf"};
        arguments.insert(arguments.end(), how.begin(), how.end());
        test::Process process(arguments);
        for (int i = 0; i < 10000 && !std::filesystem::exists(folder / "out.gguf.part"); ++i)
            usleep(1000);
        process.signal(SIGINT);
        const Finished finished = process.wait();
        expect_failure(finished, 1, "interrupted");
        EXPECT_EQ(folder.n_files(), 1u);
    }
}

}  // namespace
}  // namespace linkcpp
