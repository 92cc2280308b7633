#pragma once
// Time as the rooms see it: a steady clock in nanoseconds, injected wherever time decides something, so that the same
// code runs in virtual time in tests. Durations are std::chrono; wall-clock time is never used in a decision.

#include <chrono>

namespace linkcpp {

using Duration = std::chrono::nanoseconds;
/// Time since an arbitrary origin of the process (or of the simulation).
using Instant = std::chrono::nanoseconds;

class Clock {
  public:
    virtual ~Clock() = default;
    virtual Instant now() const = 0;
};

class SteadyClock final : public Clock {
  public:
    Instant now() const override {
        return std::chrono::duration_cast<Instant>(std::chrono::steady_clock::now().time_since_epoch());
    }
};

/// Milliseconds with a fraction, for messages and statistics.
inline double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }
inline double microseconds(Duration duration) { return std::chrono::duration<double, std::micro>(duration).count(); }

}  // namespace linkcpp
