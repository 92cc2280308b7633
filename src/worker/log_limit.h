#pragma once
// Keeps a flood of peers from becoming a flood of log lines: some lines in a stretch of time, the rest is counted. Belongs to
// one thread.

#include "base/clock.h"

#include <utility>

namespace linkcpp::worker {

class LogLimit {
  public:
    static constexpr int max_lines = 20;
    static constexpr std::chrono::seconds stretch{10};

    /// May a line be written now? One that may not is counted.
    bool allow(Instant now) {
        if (now - begun_ >= stretch) {
            begun_ = now;
            n_lines_ = 0;
        }
        if (n_lines_ < max_lines) return ++n_lines_, true;
        ++n_left_out_;
        return false;
    }
    /// Lines that were left out, to be told when the flood is over, or every stretch of it; 0: nothing to tell yet.
    size_t left_out(Instant now) {
        if (n_left_out_ == 0 || now - begun_ < stretch) return 0;
        return std::exchange(n_left_out_, 0);
    }

  private:
    Instant begun_{0};
    int n_lines_ = 0;
    size_t n_left_out_ = 0;
};

}  // namespace linkcpp::worker
