#include "cmd/progress.h"

#include "cmd/units.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

using namespace std::chrono_literals;
constexpr int bar_width = 24;

}  // namespace

std::string progress_text(const std::string& label, uint64_t done, uint64_t total, Duration elapsed) {
    const double share = total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const double seconds = std::chrono::duration<double>(elapsed).count();
    std::string text =
        fmt::format("{}  {:3.0f} %  {} of {}", label, 100 * share, human_bytes(done), human_bytes(total));
    if (seconds < 0.1 || done == 0) return text;
    text += fmt::format("  {}/s", human_bytes(static_cast<uint64_t>(static_cast<double>(done) / seconds)));
    return text + (done < total ? fmt::format("  {} left", human_time(seconds * (1 - share) / share))
                                : fmt::format("  in {}", human_time(seconds)));
}

ProgressBar::ProgressBar(std::string label, const Clock& clock, bool terminal)
    : label_(std::move(label)), clock_(clock), terminal_(terminal), start_(clock.now()), last_(start_) {}

ProgressBar::~ProgressBar() {
    if (terminal_ && drawn_) std::fputc('\n', stderr);
}

void ProgressBar::update(uint64_t done, uint64_t total) {
    const Instant now = clock_.now();
    const bool finished = done >= total;
    // Work that is over within a moment needs no bar at all.
    const bool worth_it = drawn_ || now - start_ >= 200ms;
    if (!worth_it || (!finished && now - last_ < (terminal_ ? Duration(100ms) : Duration(2s)))) return;
    draw(done, total, now);
}

void ProgressBar::draw(uint64_t done, uint64_t total, Instant now) {
    last_ = now;
    drawn_ = true;
    const std::string text = progress_text(label_, done, total, now - start_);
    if (!terminal_) {
        fmt::print(stderr, "{}\n", text);
        return;
    }
    const double share = total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    const auto filled = static_cast<size_t>(share * bar_width);
    // \033[K clears what a longer text left behind.
    fmt::print(stderr, "\r[{}{}] {}\033[K", std::string(filled, '#'), std::string(bar_width - filled, ' '), text);
    std::fflush(stderr);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

}  // namespace linkcpp::cmd
