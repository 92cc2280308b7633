#pragma once
// Recent durations of one kind and their quantiles. Not thread-safe.

#include "base/clock.h"

#include <vector>

namespace linkcpp::dispatch {

class LatencyWindow {
  public:
    void add(Duration duration);
    /// The q-quantile (0 <= q <= 1) of the last 256 durations; zero when there are none.
    Duration quantile(double q) const;
    size_t count() const { return durations_.size(); }

  private:
    static constexpr size_t capacity = 256;
    std::vector<Duration> durations_;  ///< a ring, from next_ on once it is full
    std::vector<Duration> sorted_;     ///< the same: quantiles are asked for more often than durations come
    size_t next_ = 0;
};

}  // namespace linkcpp::dispatch
