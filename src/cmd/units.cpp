#include "cmd/units.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::cmd {

std::string human_bytes(uint64_t bytes) {
    if (bytes < 1000) return fmt::format("{} bytes", bytes);
    static const char* const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
    double value = static_cast<double>(bytes) / 1000;
    size_t unit = 0;
    // 999.5 would be shown as 1000.
    while (value >= 999.5 && unit + 1 < std::size(units)) {
        value /= 1000;
        ++unit;
    }
    const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, decimals, units[unit]);
}

std::string human_time(double seconds) {
    const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 3e8) + 0.5);
    if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace linkcpp::cmd
