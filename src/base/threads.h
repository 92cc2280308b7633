#pragma once
// Which CPUs our threads run on. After a pause Linux often lets a thread wait for some milliseconds on the CPU of the one
// that woke it, while another CPU has nothing to do (docs/BENCHMARKS.md, "Two threads after a pause"). So threads that
// compute together have a CPU each. What is started from such a thread is not bound by that. Any thread may call these.

#include <functional>
#include <optional>
#include <sched.h>
#include <thread>
#include <vector>

namespace linkcpp {

/// The numbers of the CPUs that this thread may use, ascending; those of before while it stays on one of them. Empty where
/// the system does not tell.
std::vector<int> usable_cpus();

/// While it lives, the thread that made it (and destroys it) runs on one CPU. Where the system refuses, nothing changes.
class StayOnCpu {
  public:
    /// -1: nothing changes.
    explicit StayOnCpu(int cpu);
    ~StayOnCpu();
    StayOnCpu(const StayOnCpu&) = delete;
    StayOnCpu& operator=(const StayOnCpu&) = delete;

  private:
    std::optional<cpu_set_t> before_;
    bool outermost_ = false;
};

/// A thread named `name` (at most 15 characters) that may use all CPUs its starter may, also while that one stays on one.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace linkcpp
