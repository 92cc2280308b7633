#pragma once
// What this process takes of the machine's memory.

namespace linkcpp::cmd {

/// The most that was resident at any time, in MB (10^6 bytes), mapped files included. 0 when the system does not say.
double peak_resident_mb();

}  // namespace linkcpp::cmd
