#include "client/placement_watch.h"

#include "base/log.h"
#include "base/secret.h"
#include "base/threads.h"
#include "client/swarm_json.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

namespace linkcpp::client {

namespace {

using namespace std::chrono_literals;

constexpr Duration poll_wait = 30s, first_pause = 500ms, longest_pause = 8s, look_around = 50ms;

bool is_absence(const Status& status) { return status.code() == Code::unavailable || status.code() == Code::timeout; }

}  // namespace

PlacementWatch::PlacementWatch(HubAccount& account, WatchSettings settings, OnChange on_change)
    : account_(account), settings_(std::move(settings)), on_change_(std::move(on_change)), api_(account.api(&stop_)),
      roster_(settings_.roster), thread_(start_thread("lc-place", [this] { run(); })) {}

PlacementWatch::~PlacementWatch() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

Status PlacementWatch::wait_for_first(const std::atomic<bool>* stop) {
    std::unique_lock lock(mutex_);
    while (!first_) {
        if (stop != nullptr && *stop) return {Code::unavailable, "interrupted"};
        changed_.wait_for(lock, look_around);
    }
    return *first_;
}

/// False: it is time to end.
bool PlacementWatch::pause(Duration duration) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, duration, [this] { return stop_.load(); });
}

void PlacementWatch::run() {
    Duration wait = first_pause;
    while (!stop_) {
        const Status status = ask();
        if (stop_) return;
        const bool first = [&] {
            const std::lock_guard lock(mutex_);
            return !first_;
        }();
        if (first) {
            const Status begun = status.ok() ? status : begin_from_cache(status);
            const std::lock_guard lock(mutex_);
            first_ = begun;
            changed_.notify_all();
        }
        if (status.ok()) {
            if (std::exchange(away_, false)) log_info("hub {} is back", account_.url().str());
            wait = first_pause;
            continue;
        }
        if (!std::exchange(away_, true) && !first)
            log_warning("{}; the workers stay as they are, the hub is asked again", status.message());
        entered_ = false;
        version_.reset();
        if (!pause(wait)) return;
        wait = std::min(2 * wait, longest_pause);
    }
}

Status PlacementWatch::ask() {
    if (!entered_) {
        LINKCPP_TRY(account_.enter(api_));
        entered_ = true;
    }
    LINKCPP_TRY(find_model());
    // What is kept because the hub forgot it is looked at again when that has to end.
    Duration wait = poll_wait;
    if (const Duration grace = roster_.grace_left(clock_.now()); grace > Duration::zero())
        wait = std::clamp<Duration>(std::chrono::ceil<std::chrono::seconds>(grace), 1s, poll_wait);
    const Instant asked = clock_.now();
    const auto placement = account_.ask(api_, [&] { return api_.placement(model_, version_, wait); });
    if (!placement.ok()) return placement.status();
    if (away_) roster_.hub_was_away(clock_.now());
    // A hub where too many wait answers at once.
    if (version_ == placement->version && clock_.now() - asked < wait / 2 && !pause(1s)) return {};
    version_ = placement->version;
    apply(*placement);
    write_cache(*placement);
    return {};
}

/// Once: which of the hub's models is ours, and is the one with that name?
Status PlacementWatch::find_model() {
    if (!model_.empty() && version_) return {};
    const auto models = account_.ask(api_, [&] { return api_.fingerprints(); });
    if (!models.ok()) return models.status();
    std::string names, found;
    for (const auto& [name, fingerprint] : *models) {
        names += (names.empty() ? "" : ", ") + name;
        if (settings_.model.empty() ? fingerprint == settings_.fingerprint : name == settings_.model) found = name;
    }
    const std::string hub = "hub " + account_.url().str();
    if (found.empty() && settings_.model.empty())
        return {Code::not_found, hub + " does not have this model; it has: " + names};
    if (found.empty()) return {Code::not_found, hub + " has no model '" + settings_.model + "'; it has: " + names};
    if (!settings_.fingerprint.empty() && models->at(found) != settings_.fingerprint) {
        return {Code::mismatch,
                hub + ": its model '" + found +
                    "' is not the file that is loaded here (another model, another quantisation, or another version)"};
    }
    model_ = found;
    return {};
}

void PlacementWatch::apply(const Placement& placement) {
    const auto before = roster_.members();
    roster_.update(placement, clock_.now());
    if (std::exchange(told_, true) && roster_.members() == before) return;
    on_change_(placement.model, roster_.members());
}

Status PlacementWatch::begin_from_cache(const Status& why) {
    if (!is_absence(why)) return why;
    const auto placement = read_cache();
    if (!placement.ok()) {
        return {why.code(),
                why.message() + "; and the hub was not asked before about this model, so there are no workers"};
    }
    log_warning("{}; going on with the workers that it named before", why.message());
    model_ = placement->model;
    apply(*placement);
    return {};
}

std::string PlacementWatch::cache_path() const {
    const std::string& key = settings_.fingerprint.empty() ? settings_.model : settings_.fingerprint;
    return account_.folder() + "/placement-" + sha256(bytes_of_text(key)).hex().substr(0, 16) + ".json";
}

Result<Placement> PlacementWatch::read_cache() const {
    std::ifstream file(cache_path(), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file || text.empty()) return {Code::not_found, "no placement was kept"};
    try {
        Placement placement = placement_from(nlohmann::json::parse(text));
        if (settings_.model.empty() || placement.model == settings_.model) return placement;
        return {Code::not_found, "the kept placement is of another model"};
    } catch (const nlohmann::json::exception& error) {
        return {Code::corrupt, cache_path() + ": " + error.what()};
    }
}

/// An old list is of little use, so nothing depends on its being kept.
void PlacementWatch::write_cache(const Placement& placement) const {
    if (placement.holders.empty()) return;
    const std::string path = cache_path(), fresh = path + "." + std::to_string(getpid());
    {
        std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
        file << to_json(placement).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
        if (!file.flush()) return log_debug("{} cannot be written", fresh);
    }
    std::error_code error;
    std::filesystem::rename(fresh, path, error);
}

}  // namespace linkcpp::client
