// Real workers behind links that lie, die and stall at named points of a decode, against every way out: a replica, local
// weights, neither. Promised: the tokens of a run without faults, or an error; never other tokens.

#include "e2e/swarm.h"
#include "support/faulty_link.h"

namespace linkcpp::test {
namespace {

enum class Rescue { replica, local_weights, neither };
constexpr const char* rescue_names[] = {"replica", "local_weights", "neither"};

struct Case {
    const char* name;
    LinkFault fault;
    bool shows;  // without an audit
};
const Case cases[] = {
    {"nan", LinkFault::nan, true},
    {"shorter", LinkFault::shorter, true},
    {"longer", LinkFault::longer, true},
    {"duplicate", LinkFault::duplicate, true},
    {"dies", LinkFault::dies, true},
    {"dies_in_frame", LinkFault::dies_in_frame, true},
    {"stalls", LinkFault::stalls, true},
    {"stalls_in_frame", LinkFault::stalls_in_frame, true},
    {"wrong_number", LinkFault::wrong_number, false},
    {"zeros", LinkFault::zeros, false},
    {"another_expert", LinkFault::another_expert, false},
};

constexpr int n_tokens = 16;

class Lies : public Swarm, public testing::WithParamInterface<std::tuple<Case, Rescue>> {
  protected:
    std::vector<std::string> generate(const std::string& model, const std::string& by,
                                      std::vector<std::string> more) const {
        std::vector<std::string> command = {
            program("linkcpp"),       "generate",     "-m", model, "-p", "The capital of France is", "-n",
            std::to_string(n_tokens), "--ignore-eos", "-t", "1"};
        if (!by.empty()) command.insert(command.end(), {"--workers", by});
        command.insert(command.end(), more.begin(), more.end());
        return command;
    }
    static std::string fallback(Rescue rescue) { return rescue == Rescue::local_weights ? "local" : "none"; }

    /// Two workers with half of the experts each: who has all is preferred, so the fault is met. An audit asks a worker
    /// that has all.
    std::string replica(const std::string& all, const std::string& model, bool in_halves) {
        if (!in_halves) return start_worker({all});
        return start_worker({slice("", ":8", model)}) + "," + start_worker({slice("", "8:", model)});
    }

    /// The fault at the n-th answer: 0 is the prompt's first layer (or a canary), 12 is in the decode.
    void expect_promise(const std::string& model, int first_answer) {
        const auto& [fault, rescue] = GetParam();
        const Finished local = run(generate(model, "", {}));
        ASSERT_EQ(local.exit_code, 0) << local.err;
        const std::string all = slice("", "", model), honest = start_worker({all});
        FaultyLink link(honest, fault.fault, first_answer);
        std::string by = link.address();
        if (rescue == Rescue::replica) by += "," + replica(all, model, fault.shows);
        // A lie that is finite shows when somebody computes the row again: here that is asked of every answer.
        const char* audit = fault.shows ? "0" : "1";
        const Finished done = run(generate(rescue == Rescue::local_weights ? model : backbone(model), by,
                                           {"--fallback", fallback(rescue), "--audit", audit}));
        // Where nobody can compare, the audit of the first answer is the end.
        EXPECT_TRUE(link.happened() || (!fault.shows && rescue == Rescue::neither));
        // Between a liar and an honest worker nobody can tell who is right: then no tokens are the promise.
        const bool helped = rescue == Rescue::local_weights || (rescue == Rescue::replica && fault.shows) ||
                            fault.fault == LinkFault::duplicate;
        if (helped) {
            EXPECT_EQ(done.exit_code, 0) << done.err;
            EXPECT_EQ(done.out, local.out);
        } else {
            EXPECT_EQ(done.exit_code, 1);
            EXPECT_NE(done.err.find("layer "), std::string::npos) << done.err;
            EXPECT_TRUE(local.out.starts_with(done.out.substr(0, done.out.find_last_not_of('\n') + 1)))
                << "no token came from a false row: " << done.out;
        }
    }
};

TEST_P(Lies, InThePromptOfARecurrentModel) { expect_promise(capitals_model(), 0); }
TEST_P(Lies, InTheDecodeOfARecurrentModel) { expect_promise(capitals_model(), 12); }
TEST_P(Lies, InTheDecodeOfAnAttentionOnlyModel) {
    const std::string model = folder / "attention.gguf";
    const Finished made = run(
        {program("linkcpp-make-model"), "--arch", "qwen3moe", "--experts", "16", "--expert-type", "q4_K", "-o", model});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    expect_promise(model, 12);
}

INSTANTIATE_TEST_SUITE_P(All, Lies,
                         testing::Combine(testing::ValuesIn(cases),
                                          testing::Values(Rescue::replica, Rescue::local_weights, Rescue::neither)),
                         [](const auto& test) {
                             return std::string(std::get<0>(test.param).name) + "_" +
                                    rescue_names[static_cast<int>(std::get<1>(test.param))];
                         });

}  // namespace
}  // namespace linkcpp::test
