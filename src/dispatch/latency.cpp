#include "dispatch/latency.h"

#include <algorithm>
#include <cmath>

namespace linkcpp::dispatch {

void LatencyWindow::add(Duration duration) {
    if (durations_.size() < capacity) {
        durations_.push_back(duration);
    } else {
        sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), durations_[next_]));
        durations_[next_] = duration;
    }
    sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), duration), duration);
    next_ = (next_ + 1) % capacity;
}

Duration LatencyWindow::quantile(double q) const {
    if (sorted_.empty()) return Duration::zero();
    return sorted_[static_cast<size_t>(std::ceil(q * static_cast<double>(sorted_.size() - 1)))];
}

}  // namespace linkcpp::dispatch
