#include "cmd/memory_use.h"

#include <fstream>
#include <string>
#include <sys/resource.h>

namespace linkcpp::cmd {

double peak_resident_mb() {
    constexpr double kib = 1024, mb = 1e6;
    // Not getrusage alone: its figure begins with that of the process we were forked from.
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        double value = 0;
        if (word == "VmHWM:" && status >> value) return value * kib / mb;
    }
    struct rusage usage {};
    return getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<double>(usage.ru_maxrss) * kib / mb : 0;
}

}  // namespace linkcpp::cmd
