#include "worker/join.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::worker {

using client::Segment;
using Kind = JoinEvent::Kind;

namespace {

constexpr Duration poll_fetching = std::chrono::milliseconds(100);
constexpr int max_doublings = 6;

bool overlap(const Segment& a, const Segment& b) {
    return a.model == b.model && a.layer_begin < b.layer_end && b.layer_begin < a.layer_end &&
           a.expert_begin < b.expert_end && b.expert_begin < a.expert_end;
}

/// What a holder earns of every row that this segment is asked for: replicas share them.
double income(uint64_t reward, uint32_t n_holders) { return static_cast<double>(reward) / std::max(1u, n_holders); }

/// What does not get better by trying again: the slice itself is wrong.
bool is_worthless(const Status& served) {
    const Code code = served.code();
    return code == Code::corrupt || code == Code::mismatch || code == Code::invalid_argument ||
           code == Code::unsupported;
}

/// Moving is worth the while only from a place that has that many more holders; the hub sees it in the same way.
constexpr uint32_t move_gain = 2;

}  // namespace

const char* event_name(Kind kind) {
    switch (kind) {
        case Kind::registered: return "registered";
        case Kind::kept: return "kept";
        case Kind::lease: return "lease";
        case Kind::fetched: return "fetched";
        case Kind::fetch_failed: return "fetch_failed";
        case Kind::serving: return "serving";
        case Kind::moving: return "moving";
        case Kind::hub_away: return "hub_away";
        case Kind::hub_back: return "hub_back";
        case Kind::lapsed: return "lapsed";
        case Kind::drained: return "drained";
    }
    return "unknown";
}

JoinLoop::JoinLoop(const Clock& clock, HubPort& hub, SlicePort& slices, JoinSettings settings,
                   std::function<void(const JoinEvent&)> tell)
    : clock_(clock), hub_(hub), slices_(slices), settings_(settings), tell_(std::move(tell)), random_(settings.seed) {}

void JoinLoop::say(Kind kind, const std::string& text, std::optional<Segment> what) {
    if (tell_) tell_({kind, std::move(what), text});
}

/// Between three and five quarters of it.
Duration JoinLoop::jittered(Duration duration) {
    return duration * (750 + static_cast<int64_t>(random_() % 501)) / 1000;
}

std::vector<Segment> JoinLoop::segments() const {
    std::vector<Segment> list;
    for (const Held& held : held_)
        list.push_back(held.slice.what);
    return list;
}

uint64_t JoinLoop::used_bytes() const {
    uint64_t sum = 0;
    for (const Held& held : held_)
        sum += held.slice.bytes;
    return sum;
}

uint64_t JoinLoop::used_experts() const {
    uint64_t sum = 0;
    for (const Held& held : held_)
        sum += held.slice.n_experts;
    return sum;
}

Result<Duration> JoinLoop::step() {
    if (!begun_) LINKCPP_TRY(begin());
    look_at_fetching();
    const Instant now = clock_.now();
    if (now >= retry_at_) LINKCPP_TRY(note(reach_hub()));
    Instant next = tell_at_;
    if (!fetching_) next = std::min({next, ask_at_, look_at_});
    next = std::max(next, retry_at_);
    if (fetching_) next = std::min(next, now + poll_fetching);
    return std::max<Duration>(next - now, std::chrono::milliseconds(1));
}

/// What is on the disk from before is served before the hub is asked for anything.
Status JoinLoop::begin() {
    begun_ = true;
    for (const SlicePort::Kept& slice : slices_.kept()) {
        const bool fits = (settings_.max_bytes == 0 || used_bytes() + slice.bytes <= settings_.max_bytes) &&
                          (settings_.max_experts == 0 || used_experts() + slice.n_experts <= settings_.max_experts);
        const bool twice = std::any_of(held_.begin(), held_.end(),
                                       [&](const Held& held) { return overlap(held.slice.what, slice.what); });
        if (!fits || twice) continue;
        held_.push_back({slice, clock_.now(), {}});
        // One by one, so that the one that is damaged is known.
        const Status served = slices_.serve(segments());
        if (served.ok()) {
            say(Kind::kept, "", slice.what);
            continue;
        }
        held_.pop_back();
        if (!is_worthless(served)) return served;
        say(Kind::fetch_failed, served.message(), slice.what);
        slices_.forget(slice.what);
    }
    if (held_.empty()) return {};
    say(Kind::serving, fmt::format("{} slices at {}", held_.size(), slices_.address()));
    return {};
}

Status JoinLoop::reach_hub() {
    if (!registered_) LINKCPP_TRY(enter());
    if (!models_checked_) LINKCPP_TRY(check_models());
    if (clock_.now() >= tell_at_) LINKCPP_TRY(tell());
    if (!fetching_ && clock_.now() >= ask_at_) LINKCPP_TRY(ask());
    if (!fetching_ && clock_.now() >= look_at_) LINKCPP_TRY(consider_moving());
    return {};
}

Status JoinLoop::note(const Status& round) {
    if (round.ok()) {
        n_failures_ = 0;
        retry_at_ = Instant(0);
        if (std::exchange(away_, false)) say(Kind::hub_back, "");
        return {};
    }
    if (round.code() == Code::unsupported && !ever_registered_) return round;
    if (round.code() == Code::mismatch) registered_ = false;
    if (round.code() == Code::not_found) models_checked_ = false;
    // The first time that a token has expired is no failure of the hub.
    const bool only_expired = round.code() == Code::mismatch && n_failures_ == 0;
    if (!only_expired && !std::exchange(away_, true)) say(Kind::hub_away, round.message());
    const Duration longest = settings_.first_backoff * (int64_t{1} << std::min(n_failures_, max_doublings));
    const Duration backoff = std::min(longest, settings_.longest_backoff);
    retry_at_ = clock_.now() + (only_expired ? Duration(0) : jittered(backoff));
    n_failures_ += 1;
    return {};
}

Status JoinLoop::enter() {
    LINKCPP_TRY(hub_.register_node());
    if (!ever_registered_) say(Kind::registered, "");
    registered_ = ever_registered_ = true;
    models_checked_ = false;
    tell_at_ = clock_.now();
    return {};
}

/// Slices of a model that the hub has replaced meanwhile are worth nothing to anybody.
Status JoinLoop::check_models() {
    auto fingerprints = hub_.fingerprints();
    if (!fingerprints.ok()) return fingerprints.status();
    fingerprints_ = std::move(*fingerprints);
    std::vector<Segment> stale;
    const size_t before = held_.size();
    std::erase_if(held_, [&](const Held& held) {
        const auto model = fingerprints_.find(held.slice.what.model);
        if (model == fingerprints_.end()) return true;  // it may come back: the slice stays on the disk
        if (model->second == held.slice.fingerprint) return false;
        stale.push_back(held.slice.what);
        return true;
    });
    if (held_.size() != before) LINKCPP_TRY(slices_.serve(segments()));
    for (const Segment& what : stale)
        slices_.forget(what);
    models_checked_ = true;
    return {};
}

Status JoinLoop::tell() {
    client::Coverage coverage{segments(), slices_.address(), slices_.numeric_class(), slices_.load(), false, {}};
    if (fetching_ && !lapsed_) coverage.progress[fetching_->id] = fetched_bytes_;
    const auto answer = hub_.tell_coverage(coverage);
    if (!answer.ok()) return answer.status();
    for (size_t i = 0; i < held_.size() && i < answer->holds.size(); ++i)
        held_[i].terms = answer->holds[i];
    if (fetching_ && std::count(answer->lapsed.begin(), answer->lapsed.end(), fetching_->id) != 0) {
        lapsed_ = true;  // what has arrived is still of use, if for less
        say(Kind::lapsed, "", fetching_->what);
    }
    tell_at_ = clock_.now() + settings_.heartbeat_every;
    return {};
}

std::optional<client::VolunteerOffer> JoinLoop::offer(const Held* instead_of) const {
    client::VolunteerOffer offer;
    if (settings_.max_bytes != 0) {
        const uint64_t used = used_bytes() - (instead_of ? instead_of->slice.bytes : 0);
        if (used >= settings_.max_bytes) return std::nullopt;
        offer.max_bytes =
            static_cast<uint64_t>(static_cast<double>(settings_.max_bytes - used) / bytes_per_lease_byte_);
        if (offer.max_bytes == 0) return std::nullopt;
    }
    if (settings_.max_experts != 0) {
        const uint64_t used = used_experts() - (instead_of ? instead_of->slice.n_experts : 0);
        if (used >= settings_.max_experts) return std::nullopt;
        offer.max_experts = settings_.max_experts - used;
    }
    if (instead_of) offer.instead_of = instead_of->slice.what;
    return offer;
}

Status JoinLoop::ask() {
    const auto room = offer(nullptr);
    if (!room) {
        ask_at_ = clock_.now() + settings_.ask_again;
        return {};
    }
    const auto lease = hub_.volunteer(*room);
    if (lease.ok()) {
        n_nothing_ = 0;
        start_fetch(*lease, {});
        return {};
    }
    if (lease.status().code() != Code::not_found && lease.status().code() != Code::exhausted) return lease.status();
    ask_at_ = clock_.now() + jittered(settings_.ask_again * (int64_t{1} << std::min(n_nothing_, 3)));
    n_nothing_ += 1;
    return {};
}

void JoinLoop::start_fetch(const client::Lease& lease, std::optional<Segment> instead_of) {
    say(instead_of ? Kind::moving : Kind::lease,
        fmt::format("{} bytes, {} credits per 1000 rows", lease.bytes, lease.reward), lease.what);
    fetching_ = lease;
    instead_of_ = std::move(instead_of);
    lapsed_ = false;
    fetched_bytes_ = 0;
    slices_.fetch(lease);
}

void JoinLoop::look_at_fetching() {
    if (!fetching_) return;
    SlicePort::Fetching state = slices_.fetching();
    fetched_bytes_ = state.bytes;
    if (!state.ended) return;
    const Segment what = fetching_->what;
    const Status taken = state.ended->ok() ? take(**state.ended) : state.ended->status();
    fetching_.reset();
    instead_of_.reset();
    if (taken.ok()) {
        tell_at_ = ask_at_ = clock_.now();
        look_at_ = clock_.now() + jittered(settings_.look_around);
    } else {
        say(Kind::fetch_failed, taken.message(), what);
        ask_at_ = clock_.now() + jittered(settings_.ask_again);
    }
}

Status JoinLoop::take(const SlicePort::Kept& slice) {
    const auto model = fingerprints_.find(slice.what.model);
    if (model != fingerprints_.end() && model->second != slice.fingerprint) {
        slices_.forget(slice.what);
        return {Code::mismatch, "it is of another model than the hub says"};
    }
    std::vector<Held> before = held_;
    std::erase_if(held_, [&](const Held& held) { return held.slice.what == instead_of_; });
    const uint64_t needed = used_bytes() + slice.bytes;
    Status served;
    if (settings_.max_bytes != 0 && needed > settings_.max_bytes) {
        if (fetching_->bytes != 0)
            bytes_per_lease_byte_ = std::max(bytes_per_lease_byte_, 1.02 * static_cast<double>(slice.bytes) /
                                                                        static_cast<double>(fetching_->bytes));
        served = {Code::exhausted,
                  fmt::format("it takes {} bytes of memory, {} are allowed", needed, settings_.max_bytes)};
    } else {
        held_.push_back({slice, clock_.now(), {fetching_->reward, fetching_->replicas + 1, 0}});
        served = slices_.serve(segments());
    }
    if (!served.ok()) {
        held_ = std::move(before);
        slices_.forget(slice.what);
        const Status again = held_.empty() ? Status() : slices_.serve(segments());
        return again.ok() ? served : again;
    }
    say(Kind::fetched, fmt::format("{} bytes", fetched_bytes_), slice.what);
    say(Kind::serving, fmt::format("{} slices at {}", held_.size(), slices_.address()));
    if (instead_of_) slices_.forget(*instead_of_);
    return {};
}

const JoinLoop::Held* JoinLoop::worth_leaving(const std::vector<client::DemandSegment>& demand) const {
    const Held* worst = nullptr;
    for (const Held& held : held_) {
        const double here = income(held.terms.reward, held.terms.replicas);
        const bool settled = clock_.now() - held.since >= settings_.settle;
        const bool better = std::any_of(demand.begin(), demand.end(), [&](const client::DemandSegment& there) {
            const bool ours = std::any_of(held_.begin(), held_.end(),
                                          [&](const Held& other) { return overlap(other.slice.what, there.what); });
            return !ours && (settled || there.replicas == 0) && held.terms.replicas >= there.replicas + move_gain &&
                   income(there.reward, there.replicas + 1) >= settings_.clearly_better * here;
        });
        if (better && (worst == nullptr || here < income(worst->terms.reward, worst->terms.replicas))) worst = &held;
    }
    return worst;
}

Status JoinLoop::consider_moving() {
    look_at_ = clock_.now() + jittered(settings_.look_around);
    if (held_.empty()) return {};
    const auto demand = hub_.demand();
    if (!demand.ok()) return demand.status();
    const Held* leaving = worth_leaving(*demand);
    if (leaving == nullptr) return {};
    const auto room = offer(leaving);
    if (!room) return {};
    const auto lease = hub_.volunteer(*room);
    if (lease.ok()) {
        start_fetch(*lease, leaving->slice.what);
        return {};
    }
    // Somebody else was quicker, or the hub knows better.
    const Code code = lease.status().code();
    return code == Code::not_found || code == Code::exhausted || code == Code::invalid_argument ? Status()
                                                                                                : lease.status();
}

void JoinLoop::drain() {
    if (fetching_) slices_.stop_fetching();
    fetching_.reset();
    if (registered_ && !away_) (void)hub_.leave();
    say(Kind::drained, "");
}

JoinStatus JoinLoop::status() {
    JoinStatus status;
    status.registered = registered_;
    status.hub_away = away_;
    status.n_slices = held_.size();
    status.n_experts = used_experts();
    status.held_bytes = used_bytes();
    for (const Held& held : held_)
        status.best_reward = std::max(status.best_reward, held.terms.reward);
    if (fetching_) {
        status.fetching = fetching_->what;
        status.fetched_bytes = fetched_bytes_;
        status.fetch_bytes = fetching_->bytes;
    }
    return status;
}

}  // namespace linkcpp::worker
