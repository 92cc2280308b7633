// Which CPUs threads may use, as the kernel sees it.

#include "base/threads.h"

#include <gtest/gtest.h>

namespace linkcpp {
namespace {

/// What the kernel lets the calling thread use, without usable_cpus().
std::vector<int> allowed() {
    cpu_set_t cpus;
    std::vector<int> numbers;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return numbers;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &cpus)) numbers.push_back(cpu);
    }
    return numbers;
}

std::vector<int> allowed_in_a_new_thread() {
    std::vector<int> numbers;
    start_thread("lc-test", [&] { numbers = allowed(); }).join();
    return numbers;
}

TEST(Threads, OneStaysOnACpuAndItsPlansForOthersDoNot) {
    const std::vector<int> all = allowed();
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(usable_cpus(), all);
    {
        const StayOnCpu here(all.back());
        EXPECT_EQ(allowed(), std::vector<int>{all.back()});
        EXPECT_EQ(usable_cpus(), all);
        EXPECT_EQ(allowed_in_a_new_thread(), all);
        {
            const StayOnCpu there(all.front());
            EXPECT_EQ(allowed(), std::vector<int>{all.front()});
            EXPECT_EQ(allowed_in_a_new_thread(), all);
        }
        EXPECT_EQ(allowed(), std::vector<int>{all.back()});
        EXPECT_EQ(usable_cpus(), all);
    }
    EXPECT_EQ(allowed(), all);
}

/// taskset, a container: what the user allowed stays the limit.
TEST(Threads, ARestrictedProcessStaysRestricted) {
    const std::vector<int> all = allowed();
    start_thread("lc-test", [&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(all.front(), &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        EXPECT_EQ(usable_cpus(), std::vector<int>{all.front()});
        const StayOnCpu here(all.front());
        EXPECT_EQ(allowed_in_a_new_thread(), std::vector<int>{all.front()});
    }).join();
}

TEST(Threads, ACpuThatIsNotThereChangesNothing) {
    const std::vector<int> all = allowed();
    for (const int cpu : {-1, CPU_SETSIZE - 1, CPU_SETSIZE, 1 << 20}) {
        const StayOnCpu here(cpu);
        EXPECT_EQ(allowed(), all) << cpu;
        EXPECT_EQ(allowed_in_a_new_thread(), all) << cpu;
    }
    EXPECT_EQ(allowed(), all);
}

TEST(Threads, HaveANameThatToolsShow) {
    std::string name(16, '\0');
    start_thread("lc-test", [&] { pthread_getname_np(pthread_self(), name.data(), name.size()); }).join();
    EXPECT_STREQ(name.c_str(), "lc-test");
}

}  // namespace
}  // namespace linkcpp
