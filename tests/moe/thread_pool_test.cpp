// Where the threads of a pool are, as the kernel sees it.

#include "base/threads.h"
#include "moe/engine.h"
#include "moe/thread_pool.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

ggml_backend_dev_t cpu_device() {
    load_ggml_backends();
    return ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
}

/// "Cpus_allowed_list" of every thread that a pool has made ("0", "0-1", …), when there are `n` of them that are placed.
std::vector<std::string> places(size_t n, const std::string& unwanted) {
    for (;;) {
        std::vector<std::string> found;
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::ifstream status(task.path() / "status");
            std::string line, name, cpus;
            while (std::getline(status, line)) {
                if (line.starts_with("Name:\t")) name = line.substr(6);
                if (line.starts_with("Cpus_allowed_list:\t")) cpus = line.substr(19);
            }
            if (name == "lc-pool" && cpus != unwanted) found.push_back(cpus);
        }
        // A thread places itself when it begins to run.
        if (found.size() >= n) return found;
        std::this_thread::yield();
    }
}

std::string list_of_all() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("Cpus_allowed_list:\t")) return line.substr(19);
    }
    return "";
}

TEST(ThreadPool, HasACpuForEachThreadWhenThereAreAsMany) {
    const std::vector<int> all = usable_cpus();
    if (all.size() < 2) GTEST_SKIP() << "one CPU";
    const auto pool = ThreadPool::create(cpu_device(), static_cast<int>(all.size()), ThreadPool::Idle::sleeps);
    ASSERT_NE(pool, nullptr);
    EXPECT_EQ(usable_cpus(), all) << "the creator is not bound";
    std::vector<std::string> expected, found = places(all.size() - 1, list_of_all());
    found.push_back(std::to_string(pool->caller_cpu()));
    for (const int cpu : all)
        expected.push_back(std::to_string(cpu));
    std::sort(found.begin(), found.end());
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(found, expected);
}

TEST(ThreadPool, LeavesFewerOrMoreThreadsToTheSystem) {
    const int n_cpus = static_cast<int>(usable_cpus().size());
    const std::string everywhere = list_of_all();
    for (const int n_threads : {1, n_cpus - 1, n_cpus + 1}) {
        if (n_threads < 1) continue;
        // Also from a thread that is bound itself, as a backbone's is when it comes to compute an expert.
        const StayOnCpu here(usable_cpus().front());
        const auto pool = ThreadPool::create(cpu_device(), n_threads, ThreadPool::Idle::sleeps);
        ASSERT_NE(pool, nullptr);
        EXPECT_EQ(pool->caller_cpu(), -1);
        for (const std::string& cpus : places(static_cast<size_t>(n_threads) - 1, ""))
            EXPECT_EQ(cpus, everywhere) << n_threads;
    }
}

}  // namespace
}  // namespace linkcpp::moe
