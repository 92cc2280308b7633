// `linkcpp doctor`: what is wrong is found, with something to do about it; what is right is not called wrong.

#include "e2e/swarm.h"

#include <filesystem>

namespace linkcpp::test {
namespace {

class Doctor : public Swarm {
  protected:
    struct Report {
        int exit_code = -1;
        nlohmann::json findings;
        /// The level of the first finding of a check whose message contains `text`; "" when there is none.
        std::string level(const std::string& check, const std::string& text) const {
            for (const auto& finding : findings) {
                if (finding["check"] == check && finding["message"].get<std::string>().find(text) != std::string::npos)
                    return finding["level"];
            }
            return "";
        }
        bool advice_is_complete() const {
            for (const auto& finding : findings) {
                if ((finding["level"] == "ok") != finding["advice"].get<std::string>().empty()) return false;
            }
            return true;
        }
    };
    static Report examine(std::vector<std::string> more, const Environment& environment = {}) {
        std::vector<std::string> command = {program("linkcpp"), "doctor", "--json"};
        command.insert(command.end(), more.begin(), more.end());
        const Finished done = run(command, environment);
        const auto json = nlohmann::json::parse(done.out, nullptr, false);
        EXPECT_TRUE(json.is_object()) << done.out << done.err;
        if (!json.is_object()) return {};
        EXPECT_EQ(json["ok"], done.exit_code == 0);
        const Report report{done.exit_code, json["findings"]};
        EXPECT_TRUE(report.advice_is_complete()) << json.dump(2);
        return report;
    }
};

TEST_F(Doctor, FindsNothingWrongWithASoundSwarm) {
    start_worker({slice("", "0:8")});
    start_worker({slice("", "8:16")});
    const std::string stats = folder / "stats";
    const Report report =
        examine({"-m", capitals_model(), "--backbone", backbone(), "--workers", all_workers(), "-t", "1"},
                {{"LINKCPP_STATS", stats}});
    EXPECT_EQ(report.exit_code, 0);
    for (const auto& finding : report.findings)
        EXPECT_EQ(finding["level"], "ok") << finding.dump(2);
    EXPECT_EQ(report.level("plugin", "backend interface"), "ok");
    EXPECT_EQ(report.level("coverage", "every expert"), "ok");
    EXPECT_EQ(report.level("worker " + addresses[1], "experts 8:16 is of this model"), "ok");
    EXPECT_FALSE(std::filesystem::exists(stats)) << "looking changes nothing";
}

TEST_F(Doctor, FindsADeadAddressAndWhatNobodyHolds) {
    start_worker({slice("0:2", "")});
    start_worker({slice("2:4", "0:8")});
    const std::string sparse = backbone();
    const Report report = examine({"-m", sparse, "--workers", all_workers() + ",127.0.0.1:1"});
    EXPECT_EQ(report.exit_code, 1);
    EXPECT_EQ(report.level("worker 127.0.0.1:1", ""), "problem");
    EXPECT_EQ(report.level("coverage", "experts 8:16 of layers 2:4"), "problem");
    EXPECT_EQ(report.level("coverage", "layers 0:"), "") << "these have a worker";
    // The full model can compute them itself: no reason to fail.
    const Report full = examine({"-m", capitals_model(), "--workers", all_workers()});
    EXPECT_EQ(full.exit_code, 0);
    EXPECT_EQ(full.level("coverage", "experts 8:16 of layers 2:4"), "warning");
    // Without a model there is nothing to compare slices with; who is there can be said all the same.
    const Report bare = examine({"--workers", all_workers() + ",127.0.0.1:1"});
    EXPECT_EQ(bare.level("worker " + addresses[0], "answers"), "ok");
    EXPECT_EQ(bare.level("worker 127.0.0.1:1", ""), "problem");
    EXPECT_EQ(bare.level("worker " + addresses[0], "not of this model"), "");
    // Layers that are not to go remote need no worker.
    EXPECT_EQ(
        examine({"-m", capitals_model(), "--workers", all_workers(), "--layers", "0:2"}).level("coverage", "every"),
        "ok");
}

TEST_F(Doctor, FindsAWorkerOfAnotherModel) {
    const std::string q8 = folder / "q8.gguf";
    ASSERT_EQ(run({program("llama-quantize"), "--allow-requantize", capitals_model(), q8, "Q8_0"}).exit_code, 0);
    start_worker({slice("", "", q8)});
    const Report report = examine({"-m", backbone(), "--workers", all_workers()});
    EXPECT_EQ(report.exit_code, 1);
    EXPECT_EQ(report.level("worker " + addresses[0], "not of this model"), "problem");
    EXPECT_EQ(report.level("coverage", "experts 0:16 of layers 0:4"), "problem");
    EXPECT_EQ(examine({"-m", q8, "--backbone", backbone()}).level("backbone", "was not cut from"), "problem");
}

TEST_F(Doctor, FindsABackboneFileWhoseHolesWereFilled) {
    const std::string sparse = backbone(), filled = folder / "filled.gguf";
    write_file(filled, read_file(sparse));
    const Report report = examine({"-m", filled});
    EXPECT_EQ(report.exit_code, 0) << "it works, it only takes space";
    EXPECT_EQ(report.level("model", "filled by a copy"), "warning");
    EXPECT_EQ(examine({"-m", sparse}).level("model", "markers are intact"), "ok");

    Bytes damaged = read_file(filled);
    const std::string_view all(reinterpret_cast<const char*>(damaged.data()), damaged.size());
    const size_t marker = all.find("linkcpp:hole");
    ASSERT_NE(marker, std::string_view::npos);
    damaged[marker + 70] ^= 1;
    write_file(filled, damaged);
    const Report broken = examine({"-m", filled});
    EXPECT_EQ(broken.exit_code, 1);
    EXPECT_EQ(broken.level("model", ""), "problem");
}

TEST_F(Doctor, FindsAClockThatIsBehind) {
    const std::string sparse = backbone();
    EXPECT_EQ(examine({"-m", sparse}).level("clock", "UTC"), "ok");
    std::filesystem::last_write_time(sparse, std::filesystem::file_time_type::clock::now() + std::chrono::hours(24));
    const Report report = examine({"-m", sparse});
    EXPECT_EQ(report.exit_code, 0) << "tokens do not depend on it";
    EXPECT_EQ(report.level("clock", sparse), "warning");
}

TEST_F(Doctor, FindsAConfigThatCannotBeRead) {
    const std::string path = folder / "swarm.json", text = R"({"default": {"worker": []}})";
    write_file(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    const Report report = examine({"-m", capitals_model(), "--config", path});
    EXPECT_EQ(report.exit_code, 1);
    EXPECT_EQ(report.level("config", "unknown key 'worker'"), "problem");
}

}  // namespace
}  // namespace linkcpp::test
