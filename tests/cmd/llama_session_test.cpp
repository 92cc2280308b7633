// A session beside other programs that want the processor.

#include "cmd/llama_session.h"
#include "moe/files.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <thread>
#include <unistd.h>

namespace linkcpp::cmd {
namespace {

/// Threads of this process, beside the calling one, that have something to do.
int busy_threads() {
    int busy = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        if (task.path().filename() == std::to_string(gettid())) continue;
        std::ifstream file(task.path() / "stat");
        const std::string text((std::istreambuf_iterator<char>(file)), {});
        const size_t state = text.rfind(") ");
        busy += state != std::string::npos && text[state + 2] == 'R' ? 1 : 0;
    }
    return busy;
}

/// Processor time, in seconds, that this process takes until its other threads sleep.
double processor_time_until_quiet() {
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    while (busy_threads() > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return now() - begin;
}

TEST(LlamaSession, ThreadsThatRestTakeNoProcessor) {
    set_llama_log(false);
    ggml_backend_load_all_from_path(LINKCPP_BIN_DIR);
    const std::atomic<bool> stop = false;
    ModelOptions options;
    options.model = test::capitals_model();
    options.n_threads = 4;
    const auto model = LlamaModel::load(options, stop);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto session = LlamaSession::open(*model, options, 64, stop);
    ASSERT_TRUE(session.ok()) << session.status().message();
    const auto tokens = model->tokenize("The capital of France is");
    ASSERT_TRUE(tokens.ok());

    ASSERT_TRUE(session->decode(*tokens).ok());
    const double unrested = processor_time_until_quiet();
    session->clear();
    ASSERT_TRUE(session->decode(*tokens).ok());
    session->rest();
    const double rested = processor_time_until_quiet();
    EXPECT_LT(rested, unrested / 2);

    const std::vector<float> before(session->logits().begin(), session->logits().end());
    session->clear();
    ASSERT_TRUE(session->decode(*tokens).ok());
    EXPECT_EQ(before, std::vector<float>(session->logits().begin(), session->logits().end()));
}

}  // namespace
}  // namespace linkcpp::cmd
