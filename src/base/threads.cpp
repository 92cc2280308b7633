#include "base/threads.h"

#include <pthread.h>

namespace linkcpp {

namespace {

/// What this thread may use when it no longer stays on one CPU.
thread_local std::optional<cpu_set_t> home;

std::optional<cpu_set_t> affinity() {
    cpu_set_t cpus;
    if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return std::nullopt;
    return cpus;
}

}  // namespace

std::vector<int> usable_cpus() {
    const auto cpus = home ? home : affinity();
    std::vector<int> numbers;
    for (int cpu = 0; cpus && cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &*cpus)) numbers.push_back(cpu);
    }
    return numbers;
}

StayOnCpu::StayOnCpu(int cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    const auto now = affinity();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (!now || sched_setaffinity(0, sizeof one, &one) != 0) return;
    before_ = now;
    outermost_ = !home;
    if (outermost_) home = now;
}

StayOnCpu::~StayOnCpu() {
    if (outermost_) home.reset();
    if (before_) sched_setaffinity(0, sizeof *before_, &*before_);
}

std::thread start_thread(const char* name, std::function<void()> body) {
    return std::thread([name, cpus = home, body = std::move(body)] {
        pthread_setname_np(pthread_self(), name);
        if (cpus) sched_setaffinity(0, sizeof *cpus, &*cpus);
        body();
    });
}

}  // namespace linkcpp
