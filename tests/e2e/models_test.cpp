// Two models in one process, each with workers and settings of its own.

#include "e2e/http_server.h"
#include "e2e/swarm.h"

#include <filesystem>
#include <fstream>

namespace linkcpp::test {
namespace {

class TwoModels : public Swarm {
  protected:
    std::string copy_of_the_model(const std::string& name) {
        const std::string path = folder / name;
        std::filesystem::copy_file(capitals_model(), path);
        return path;
    }
    std::string config(const nlohmann::json& json) {
        const std::string path = folder / "linkcpp.json", text = json.dump();
        write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
        return path;
    }
    Environment environment(const std::string& config) {
        return {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                {"LINKCPP_CONFIG", config},
                {"LINKCPP_STATS", folder / "stats.jsonl"}};
    }
    struct Rows {
        uint64_t remote = 0, local = 0;
        bool operator==(const Rows&) const = default;
    };
    /// By model and layer.
    std::map<std::pair<std::string, int>, Rows> rows() {
        std::map<std::pair<std::string, int>, Rows> all;
        std::ifstream file(folder / "stats.jsonl");
        for (std::string line; std::getline(file, line);) {
            const auto json = nlohmann::json::parse(line);
            Rows& sum = all[{json["model"].get<std::string>(), json["layer"].get<int>()}];
            sum.remote += json["rows_remote"].get<uint64_t>();
            sum.local += json["rows_local"].get<uint64_t>();
        }
        return all;
    }
};

TEST_F(TwoModels, ADraftAndAMainModelUseTheirOwnWorkersAndTheTextIsThatOfAStockRun) {
    const std::string main = copy_of_the_model("main.gguf"), draft = copy_of_the_model("draft-1.gguf");
    // What one worker has the other lacks: rows tell which worker a model used.
    const std::string for_main = start_worker({slice("0:2", "")}), for_draft = start_worker({slice("2:4", "")});
    const std::string settings =
        config({{"default", {{"workers", {for_main}}}},
                {"models", {{{"file", "draft-*.gguf"}, {"workers", {for_draft}}, {"layers", "1:4"}}}}});
    const std::vector<std::string> command = {program("llama-server"),
                                              "-m",
                                              main,
                                              "-md",
                                              draft,
                                              "--spec-type",
                                              "draft-simple",
                                              "-c",
                                              "512",
                                              "-np",
                                              "1",
                                              "-t",
                                              "1"};
    const nlohmann::json question = {{"prompt", "The capital of France is"}, {"n_predict", 40}, {"temperature", 0}};
    nlohmann::json expected, answer;
    {
        HttpServer stock(command, {});
        expected = stock.ask(question);
    }
    HttpServer server(command, environment(settings));
    answer = server.ask(question);
    const Finished done = server.stop();
    EXPECT_EQ(answer["content"], expected["content"]);
    EXPECT_NE(answer["content"].get<std::string>().find("Paris"), std::string::npos);
    EXPECT_GT(answer["timings"].value("draft_n_accepted", 0), 0) << answer["timings"].dump(2);

    auto all = rows();
    EXPECT_EQ(all.size(), 8u) << "all layers of both models";
    for (const auto& [key, rows] : all) {
        const auto& [model, layer] = key;
        const bool is_draft = model == "draft-1.gguf";
        const bool remote = is_draft ? layer >= 2 : layer < 2;
        EXPECT_EQ(rows.remote > 0, remote) << model << " " << layer << done.err;
        EXPECT_EQ(rows.local == 0, remote) << model << " " << layer;
    }
}

/// A layer that only the other model's settings let go remote is computed here, whatever its own workers hold.
TEST_F(TwoModels, LayersOutsideOfAModelsOwnRangeStayHere) {
    const std::string settings = config({{"default", {{"workers", {start_worker({slice("", "")})}}, {"layers", "1:2"}}},
                                         {"models", {{{"file", "other*"}, {"layers", "0:4"}}}}});
    const std::vector<std::string> command = {program("llama-completion"),
                                              "-m",
                                              capitals_model(),
                                              "-p",
                                              "The capital of France is",
                                              "-n",
                                              "24",
                                              "--temp",
                                              "0",
                                              "-no-cnv",
                                              "--no-display-prompt",
                                              "-t",
                                              "1",
                                              "-c",
                                              "128"};
    const Finished expected = run(command), done = run(command, environment(settings));
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out, expected.out);
    auto all = rows();
    ASSERT_EQ(all.size(), 4u);
    for (const auto& [key, rows] : all)
        EXPECT_EQ(rows.remote > 0, key.second == 1) << key.second;
}

TEST_F(TwoModels, ASlipInTheFileFailsTheDecodeAndNamesTheKey) {
    const Finished done = run({program("llama-completion"), "-m", capitals_model(), "-p", "x", "-n", "2", "-no-cnv"},
                              environment(config({{"default", {{"worker", nullptr}}}})));
    EXPECT_NE(done.exit_code, 0);
    EXPECT_NE(done.err.find("linkcpp.json: default: unknown key 'worker'"), std::string::npos) << done.err;
}

TEST_F(TwoModels, TheCommandLineTakesTheFileToo) {
    const std::string settings =
        config({{"default", {{"workers", {start_worker({slice("", "")})}}, {"fallback", "none"}}}});
    const Finished done = run({program("linkcpp"), "verify", "-m", capitals_model(), "--backbone", backbone(),
                               "--config", settings, "-n", "8", "-t", "1", "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_GT(nlohmann::json::parse(done.out)["rows_remote"].get<int>(), 0);
}

}  // namespace
}  // namespace linkcpp::test
