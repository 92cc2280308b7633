#pragma once
// Shows how far long work is, on standard error: a bar that is redrawn on a terminal, a plain line now and then where
// nobody watches. One object per piece of work; call update() from one thread.

#include "base/clock.h"

#include <cstdint>
#include <string>

namespace linkcpp::cmd {

class ProgressBar {
  public:
    /// `label`: what is being done, e.g. "Writing slice". `terminal`: whether standard error is one (see below).
    ProgressBar(std::string label, const Clock& clock, bool terminal);
    /// Ends the bar's line, so that what is printed next begins on its own.
    ~ProgressBar();
    ProgressBar(const ProgressBar&) = delete;
    ProgressBar& operator=(const ProgressBar&) = delete;

    /// Cheap to call often: draws at most ten times a second (a line at most every two seconds without a terminal).
    void update(uint64_t done, uint64_t total);

  private:
    void draw(uint64_t done, uint64_t total, Instant now);

    std::string label_;
    const Clock& clock_;
    bool terminal_;
    Instant start_, last_;
    bool drawn_ = false;
};

/// "Writing slice   45 %  712 MB of 1.58 GB  810 MB/s  0:01 left"
std::string progress_text(const std::string& label, uint64_t done, uint64_t total, Duration elapsed);

bool stderr_is_terminal();

}  // namespace linkcpp::cmd
