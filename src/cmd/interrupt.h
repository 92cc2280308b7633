#pragma once
// Ctrl-C as a wish to stop: work in progress sees the flag and cleans up. A second Ctrl-C ends the process at once.

#include <atomic>

namespace linkcpp::cmd {

/// Catches SIGINT, SIGTERM and SIGHUP from now on; the flag becomes true with the first of them. Call it once per
/// process, before threads start.
const std::atomic<bool>& catch_interrupts();

}  // namespace linkcpp::cmd
