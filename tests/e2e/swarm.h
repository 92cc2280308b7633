#pragma once
// Real processes on loopback: slices cut from a real model, workers that serve them, a backbone that uses them.

#include "moe/files.h"
#include "support/process.h"

#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace linkcpp::test {

class Swarm : public testing::Test {
  protected:
    /// Cuts a slice of `model`; "" layers or experts = all.
    std::string slice(const std::string& layers, const std::string& experts,
                      const std::string& model = capitals_model()) {
        const std::string path = folder / ("slice" + std::to_string(n_slices++) + ".gguf");
        std::vector<std::string> command = {program("linkcpp"), "slice", model, "-o", path};
        if (!layers.empty()) command.insert(command.end(), {"--layers", layers});
        if (!experts.empty()) command.insert(command.end(), {"--experts", experts});
        const Finished cut = run(command);
        EXPECT_EQ(cut.exit_code, 0) << cut.err;
        return path;
    }
    std::string backbone(const std::string& model = capitals_model()) {
        const std::string path = folder / ("backbone" + std::to_string(n_slices++) + ".gguf");
        const Finished cut = run({program("linkcpp"), "slice", model, "--backbone", "-o", path});
        EXPECT_EQ(cut.exit_code, 0) << cut.err;
        return path;
    }
    /// Starts a worker for some slices and returns its address.
    std::string start_worker(const std::vector<std::string>& slices) {
        std::vector<std::string> command = {program("linkcpp-expert-worker"), "--serve", "127.0.0.1:0", "--threads",
                                            "1"};
        for (const std::string& path : slices)
            command.insert(command.end(), {"--model", path});
        workers.push_back(std::make_unique<Process>(command));
        const auto address = workers.back()->wait_for_line("serving on ");
        if (!address) ADD_FAILURE() << "the worker did not start: " << workers.back()->wait().err;
        addresses.push_back(address.value_or("127.0.0.1:1"));
        return addresses.back();
    }
    std::string all_workers() const {
        std::string list;
        for (const std::string& address : addresses)
            list += (list.empty() ? "" : ",") + address;
        return list;
    }
    /// `linkcpp verify --json`; the exit code is in "exit_code".
    nlohmann::json verify(const std::string& model, const std::string& sparse, int n_tokens,
                          std::vector<std::string> more = {}) {
        std::vector<std::string> command = {
            program("linkcpp"),       "verify", "-m", model,   "--workers", all_workers(), "-n",
            std::to_string(n_tokens), "-t",     "1",  "--json"};
        if (!sparse.empty()) command.insert(command.end(), {"--backbone", sparse, "--fallback", "none"});
        command.insert(command.end(), more.begin(), more.end());
        const Finished done = run(command);
        nlohmann::json report = nlohmann::json::parse(done.out, nullptr, false);
        if (!report.is_object()) report = nlohmann::json::object();
        report["exit_code"] = done.exit_code;
        report["err"] = done.err;
        return report;
    }
    static void expect_exact(const nlohmann::json& report, int n_tokens) {
        ASSERT_EQ(report["exit_code"], 0) << report.dump(2);
        EXPECT_EQ(report["tokens_total"], n_tokens);
        EXPECT_EQ(report["tokens_identical"], n_tokens);
        EXPECT_EQ(report["logits_max_abs_diff"], 0.0) << report.dump(2);
    }

    /// 71 tokens or so: more than one tile of rows, every expert busy.
    static std::vector<std::string> long_prompt() {
        return {"-p", "The capital of France is Paris. France is a country in Western Europe. It borders Andorra, "
                      "Belgium, Germany, Italy, Luxembourg, Monaco, "
                      "Spain and Switzerland. The capital of Italy is Rome. The capital of Japan is Tokyo. The capital "
                      "of Kenya is"};
    }

    /// What llama-perplexity says in the end. Stock llama.cpp's logger loses the tail of its lines once in a hundred runs,
    /// so one that says nothing is asked again.
    static std::string perplexity(const std::vector<std::string>& command, const Environment& environment = {}) {
        std::string all;
        for (int i = 0; i < 5; ++i) {
            const Finished done = run(command, environment);
            all = done.out + done.err;
            const size_t at = all.find("Final estimate: PPL = ");
            const size_t end = at == std::string::npos ? at : all.find('\n', at);
            if (end != std::string::npos) return all.substr(at, end - at);
            if (done.exit_code != 0) break;
        }
        return "none: " + all;
    }

    TempFolder folder;
    int n_slices = 0;
    std::vector<std::unique_ptr<Process>> workers;
    std::vector<std::string> addresses;
};

}  // namespace linkcpp::test
