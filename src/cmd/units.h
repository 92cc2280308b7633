#pragma once
// Numbers as people read them: decimal units (1 MB = 10^6 bytes), three significant digits. Pure functions.

#include <cstdint>
#include <string>

namespace linkcpp::cmd {

/// "1.58 GB", "12.3 MB", "987 bytes"
std::string human_bytes(uint64_t bytes);

/// "0:07", "12:30", "1:02:03"
std::string human_time(double seconds);

}  // namespace linkcpp::cmd
