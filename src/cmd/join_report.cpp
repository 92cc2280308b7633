#include "cmd/join_report.h"

#include "base/log.h"
#include "cmd/progress.h"
#include "cmd/units.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

namespace linkcpp::cmd {

using worker::JoinEvent;
using Kind = JoinEvent::Kind;

namespace {

const char* sentence(Kind kind) {
    switch (kind) {
        case Kind::registered: return "registered with the hub";
        case Kind::kept: return "kept from before";
        case Kind::lease: return "leased";
        case Kind::fetched: return "downloaded, verified and tested";
        case Kind::fetch_failed: return "not usable";
        case Kind::serving: return "serving";
        case Kind::moving: return "moving to where it is needed more";
        case Kind::hub_away: return "the hub is away, it is tried again";
        case Kind::hub_back: return "the hub is back";
        case Kind::lapsed: return "the lease lapsed, the download goes on";
        case Kind::drained: return "left the swarm";
    }
    return "";
}

LogLevel level_of(Kind kind) {
    return kind == Kind::fetch_failed || kind == Kind::hub_away || kind == Kind::lapsed ? LogLevel::warning
                                                                                        : LogLevel::info;
}

std::string join_words(const JoinEvent& event) {
    std::string line = sentence(event.kind);
    if (event.what) line += ": " + event.what->str();
    if (!event.text.empty()) line += (event.what ? " (" : ": ") + event.text + (event.what ? ")" : "");
    return line;
}

void print_json(const JoinEvent& event) {
    nlohmann::json line = {{"event", worker::event_name(event.kind)},
                           {"time", static_cast<int64_t>(std::time(nullptr))}};
    if (!event.text.empty()) line["text"] = event.text;
    if (event.what) {
        line["model"] = event.what->model;
        line["layers"] = {event.what->layer_begin, event.what->layer_end};
        line["experts"] = {event.what->expert_begin, event.what->expert_end};
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
}

}  // namespace

std::string status_text(const worker::JoinStatus& status, Duration fetching_for) {
    std::string text = status.n_slices == 0 ? std::string("serving nothing yet")
                                            : fmt::format("serving {} slice{}, {} experts, {}", status.n_slices,
                                                          status.n_slices == 1 ? "" : "s", status.n_experts,
                                                          human_bytes(status.held_bytes));
    if (status.best_reward != 0) text += fmt::format(", {} credits per 1000 rows", status.best_reward);
    if (status.fetching)
        text = progress_text("downloading " + status.fetching->str(), status.fetched_bytes, status.fetch_bytes,
                             fetching_for) +
               "; " + text;
    return text + (status.hub_away ? "; the hub is away" : status.registered ? "" : "; registering");
}

JoinReport::JoinReport(const Clock& clock, Style style, bool terminal)
    : clock_(clock), style_(style), terminal_(terminal) {}

JoinReport::~JoinReport() {
    if (drawn_) std::fputc('\n', stderr);
}

void JoinReport::clear_line() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
    drawn_ = false;
}

void JoinReport::event(const JoinEvent& event) {
    if (style_ == Style::json) return print_json(event);
    clear_line();
    log_line(level_of(event.kind), join_words(event));
}

void JoinReport::status(const worker::JoinStatus& status) {
    if (style_ != Style::text || !terminal_) return;
    if (status.fetching != fetching_) {
        fetching_ = status.fetching;
        fetching_since_ = clock_.now();
    }
    fmt::print(stderr, "\r{}\033[K", status_text(status, clock_.now() - fetching_since_));
    std::fflush(stderr);
    drawn_ = true;
}

}  // namespace linkcpp::cmd
