#include "dispatch/latency.h"

#include <algorithm>
#include <cmath>

namespace linkcpp::dispatch {

void LatencyWindow::add(Duration duration) {
    if (durations_.size() < capacity) {
        durations_.push_back(duration);
    } else {
        durations_[next_] = duration;
    }
    next_ = (next_ + 1) % capacity;
}

Duration LatencyWindow::quantile(double q) const {
    if (durations_.empty()) return Duration::zero();
    std::vector<Duration> sorted = durations_;
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(sorted.size() - 1)));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<long>(rank), sorted.end());
    return sorted[rank];
}

}  // namespace linkcpp::dispatch
