// Stock, unmodified llama.cpp tools with the plugin.

#include "e2e/http_server.h"
#include "e2e/swarm.h"

#include <fstream>

namespace linkcpp::test {
namespace {

class Plugin : public Swarm {
  protected:
    Environment environment(const std::string& fallback = "none") {
        return {{"GGML_BACKEND_PATH", program("libggml-linkcpp.so")},
                {"LINKCPP_WORKERS", all_workers()},
                {"LINKCPP_FALLBACK", fallback},
                {"LINKCPP_STATS", stats()}};
    }
    std::string stats() { return folder / "stats.jsonl"; }
    /// llama-completion loses the tail of its text about once in a hundred runs: the longest of three tells.
    static std::string complete(const std::string& model, const Environment& environment, int n_tokens = 48) {
        std::string longest;
        for (int i = 0; i < 3; ++i) {
            const Finished done =
                run({program("llama-completion"), "-m", model, "-p", "The capital of France is", "-n",
                     std::to_string(n_tokens), "--temp", "0", "-no-cnv", "--no-display-prompt", "-t", "1", "-c", "256"},
                    environment);
            EXPECT_EQ(done.exit_code, 0) << done.err;
            if (done.out.size() > longest.size()) longest = done.out;
        }
        return longest;
    }
    std::pair<uint64_t, uint64_t> rows_remote_and_local() {
        std::ifstream file(stats());
        uint64_t remote = 0, local = 0;
        for (std::string line; std::getline(file, line);) {
            const auto json = nlohmann::json::parse(line);
            remote += json["rows_remote"].get<uint64_t>();
            local += json["rows_local"].get<uint64_t>();
        }
        return {remote, local};
    }
};

TEST_F(Plugin, LlamaCompletionPrintsTheSameTextFromTheFullAndTheSparseFile) {
    const std::string expected = complete(capitals_model(), {});
    ASSERT_NE(expected.find("Paris"), std::string::npos);
    start_worker({slice("", "0:8")});
    start_worker({slice("", "8:16")});
    for (const std::string& model : {capitals_model(), backbone()}) {
        EXPECT_EQ(complete(model, environment()), expected) << model;
        const auto [remote, local] = rows_remote_and_local();
        EXPECT_GT(remote, 0u);
        EXPECT_EQ(local, 0u);
    }
}

TEST_F(Plugin, LlamaPerplexityIsTheSame) {
    const std::string text = folder / "text.txt";
    std::string words;
    for (int i = 0; i < 12; ++i)
        words += long_prompt()[1] + " ";
    write_file(text, {reinterpret_cast<const uint8_t*>(words.data()), words.size()});
    const std::vector<std::string> command = {
        program("llama-perplexity"), "-m", capitals_model(), "-f", text, "-c", "128", "-b", "128", "-t", "1"};
    const std::string expected = perplexity(command);
    ASSERT_TRUE(expected.starts_with("Final")) << expected;
    start_worker({slice("", "0:11")});
    start_worker({slice("", "11:16")});
    EXPECT_EQ(perplexity(command, environment()), expected);
    EXPECT_EQ(rows_remote_and_local().second, 0u);
}

TEST_F(Plugin, LlamaServerAnswersAnErrorWhenAHolderDiesAndLives) {
    const std::string first = slice("", "0:8"), second = slice("", "8:16");
    start_worker({first});
    const std::string address = start_worker({second});
    const std::string url = "http://127.0.0.1:" + free_port();
    Process server({program("llama-server"), "-m", backbone(), "--host", "127.0.0.1", "--port",
                    url.substr(url.rfind(':') + 1), "-c", "512", "-np", "2", "-t", "1"},
                   environment());
    const Finished up =
        run({"/usr/bin/curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", url + "/health"});
    ASSERT_EQ(up.exit_code, 0) << "the server did not start";
    const auto ask = [&] {
        // The status code stands on the last line.
        return run({"/usr/bin/curl", "-s", "-w", "\n%{http_code}", "-m", "60", url + "/completion", "-d",
                    R"({"prompt": "The capital of France is", "n_predict": 16, "temperature": 0, "cache_prompt": false})"})
            .out;
    };
    const std::string before = ask();
    EXPECT_TRUE(before.ends_with("\n200")) << before;
    EXPECT_NE(before.find("Paris"), std::string::npos) << before;

    workers[1]->signal(SIGKILL);
    workers[1]->wait();
    const std::string without = ask();
    EXPECT_TRUE(without.ends_with("\n500")) << without;

    workers[1] = std::make_unique<Process>(
        std::vector<std::string>{program("linkcpp-expert-worker"), "--serve", address, "--model", second});
    ASSERT_TRUE(workers[1]->wait_for_line("serving on "));
    const std::string after = ask();
    EXPECT_TRUE(after.ends_with("\n200")) << after;
    EXPECT_NE(after.find("Paris"), std::string::npos) << after;
}

TEST_F(Plugin, ASettingThatMakesNoSenseFailsTheDecodeWithTheReason) {
    Environment bad = environment();
    bad["LINKCPP_LAYERS"] = "4:2";
    const Finished done =
        run({program("llama-completion"), "-m", capitals_model(), "-p", "x", "-n", "4", "-no-cnv", "-c", "64"}, bad);
    EXPECT_NE(done.exit_code, 0);
    EXPECT_NE(done.err.find("LINKCPP_LAYERS"), std::string::npos) << done.err;
}

TEST_F(Plugin, OnlyItsEntryPointIsVisible) {
    const Finished symbols = run({"/usr/bin/nm", "-D", "--defined-only", program("libggml-linkcpp.so")});
    ASSERT_EQ(symbols.exit_code, 0) << symbols.err;
    EXPECT_NE(symbols.out.find("ggml_backend_init"), std::string::npos);
    EXPECT_EQ(std::count(symbols.out.begin(), symbols.out.end(), '\n'), 1) << symbols.out;
}

}  // namespace
}  // namespace linkcpp::test
