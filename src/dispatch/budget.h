#pragma once
// A token bucket: something extra may be done for at most a share of all occasions, with a little saved up. Pure.

#include <algorithm>

namespace linkcpp::dispatch {

class Budget {
  public:
    Budget(double share, double most) : share_(share), most_(most) {}

    void earn() { left_ = std::min(most_, left_ + share_); }
    bool spend() {
        if (left_ < 1) return false;
        left_ -= 1;
        return true;
    }

  private:
    double share_, most_, left_ = 0;
};

}  // namespace linkcpp::dispatch
