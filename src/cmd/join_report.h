#pragma once
// What an autonomous worker tells: one line that is redrawn on a terminal, lines as things happen elsewhere, or JSON lines for
// programs. Text goes to standard error, JSON to standard output. One thread.

#include "worker/join.h"

namespace linkcpp::cmd {

class JoinReport {
  public:
    enum class Style { text, json, quiet };
    JoinReport(const Clock& clock, Style style, bool terminal);
    ~JoinReport();  ///< ends the line
    JoinReport(const JoinReport&) = delete;
    JoinReport& operator=(const JoinReport&) = delete;

    void event(const worker::JoinEvent& event);
    /// Cheap to call often.
    void status(const worker::JoinStatus& status);

  private:
    void clear_line();

    const Clock& clock_;
    const Style style_;
    const bool terminal_;
    Instant fetching_since_{0};
    std::optional<client::Segment> fetching_;
    bool drawn_ = false;
};

/// "downloading qwen, layers 0:1, experts 0:64  45 %  …", "serving 2 slices, 128 experts, 1.58 GB; …"
std::string status_text(const worker::JoinStatus& status, Duration fetching_for);

}  // namespace linkcpp::cmd
