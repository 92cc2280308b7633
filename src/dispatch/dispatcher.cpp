#include "dispatch/dispatcher.h"

#include "base/log.h"

#include <algorithm>
#include <atomic>
#include <fmt/format.h>

namespace linkcpp::dispatch {

namespace {

constexpr Duration tick_interval = 25ms;
Status nothing_to_compare() { return {Code::not_found, "there is nobody to compare its answer with"}; }

constexpr double max_saved_hedges = 5;
constexpr uint16_t max_attempts = 100;  // of one job: something is wrong with all of them, not with one

}  // namespace

Dispatcher::Dispatcher(net::Network& network, Settings settings, std::vector<net::Address> workers, PeerCheck* check)
    : network_(network), settings_(std::move(settings)), hedges_(settings_.hedge_share, max_saved_hedges),
      check_(check) {
    for (net::Address& address : workers)
        add_worker(std::move(address));
}

Dispatcher::~Dispatcher() {
    *alive_ = false;
    network_.loop().cancel(ticker_);
}

void Dispatcher::connect() {
    if (first_connect_.count() >= 0) return;
    first_connect_ = network_.loop().now();
    for (auto& peer : peers_)
        peer->start();
    keep_ticking();
}

bool Dispatcher::is_coming(const Peer& peer) const {
    if (!peer.in_admission()) return false;
    return peer.runs_canaries() ||
           network_.loop().now() - std::max(peer.welcomed(), check_moved_) < settings_.check_stall;
}

bool Dispatcher::settled(bool patient) const {
    const bool in_time = network_.loop().now() - first_connect_ < settings_.settle_timeout;
    for (uint32_t p = 0; p < peers_.size() && !stopped(); ++p) {
        if (late_.contains(p) || peers_[p]->settled()) continue;
        if (in_time || (patient && is_coming(*peers_[p]))) return false;
    }
    return true;
}

void Dispatcher::when_settled(bool patient, std::function<void()> ready) {
    connect();
    if (settled(patient)) return ready();
    waiting_for_settled_.emplace_back(patient, std::move(ready));
    keep_ticking();
}

void Dispatcher::go_on_if_settled() {
    for (auto& [patient, ready] : std::exchange(waiting_for_settled_, {})) {
        if (settled(patient)) {
            ready();
        } else {
            waiting_for_settled_.emplace_back(patient, std::move(ready));
        }
    }
}

Status Dispatcher::run(const ExpertJob& job, JobResult& result) {
    std::atomic<bool> is_finished = false;
    Status status;
    const auto done = [&](Status job_status, JobResult job_result) {
        status = std::move(job_status);
        result = std::move(job_result);
        is_finished = true;
    };
    network_.loop().run([&] { start(job, done, std::move(result)); });
    if (!network_.loop().run_until([&] { return is_finished.load(); }))
        return {Code::unavailable, "the network was stopped"};
    return status;
}

void Dispatcher::start(const ExpertJob& job, Done done, JobResult memory) {
    const uint64_t id = next_id_++;
    if (!distrust_.ok()) {
        return network_.loop().post([done = std::move(done), why = std::exchange(distrust_, {})] { done(why, {}); });
    }
    Running& running = jobs_[id];
    running.job = job;
    running.done = std::move(done);
    running.result = std::move(memory);
    running.result.rows_remote = 0;
    running.result.rows.resize(static_cast<size_t>(job.n_pairs()) * job.program->n_out);
    running.result.state.assign(job.n_pairs(), RowState::missing);
    running.open.resize(job.n_pairs());
    for (uint32_t pair = 0; pair < job.n_pairs(); ++pair)
        running.open[pair] = pair;
    totals_.jobs += 1;
    totals_.tokens += job.n_tokens;
    when_settled(!job.accept_missing, [this, id, alive = alive_] {
        if (*alive) assign(id);
    });
    keep_ticking();
}

bool Dispatcher::is_same_class(const Peer& peer) const {
    return !settings_.numeric_class.empty() && peer.numeric_class() == settings_.numeric_class;
}

std::vector<Holder> Dispatcher::candidates(const Running& running) const {
    const uint32_t layer = running.job.layer;
    std::vector<Holder> holders;
    for (uint32_t p = 0; p < peers_.size(); ++p) {
        const Peer& peer = *peers_[p];
        if (!peer.ready() || running.unable.contains(p) || running.busy.contains(p)) continue;
        for (uint32_t o = 0; o < peer.offers().size(); ++o) {
            const wire::SliceOffer& offer = peer.offers()[o];
            if (layer < offer.layer_begin || layer >= offer.layer_end) continue;
            holders.push_back({p, o, offer.expert_begin, offer.expert_end, is_same_class(peer), peer.expected()});
        }
    }
    return holders;
}

void Dispatcher::assign(uint64_t id) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    Running& running = found->second;
    const ExpertJob& job = running.job;
    if (running.attempt >= max_attempts) {
        if (!job.accept_missing) return finish(id, nobody_holds(running));
        running.open.clear();  // they stay `missing`
        if (running.parts == 0) finish(id, {});
        return;
    }

    std::vector<uint32_t> experts;
    for (uint32_t pair : running.open)
        experts.push_back(static_cast<uint32_t>(job.expert[pair]));
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    const std::vector<Holder> holders = candidates(running);
    const std::vector<int> chosen = place(experts, holders);

    std::vector<std::vector<uint32_t>> share(holders.size());
    std::vector<uint32_t> left;
    for (uint32_t pair : running.open) {
        const auto expert = std::lower_bound(experts.begin(), experts.end(), static_cast<uint32_t>(job.expert[pair]));
        const int holder = chosen[static_cast<size_t>(expert - experts.begin())];
        (holder == no_holder ? left : share[static_cast<size_t>(holder)]).push_back(pair);
    }
    running.open.clear();
    if (!left.empty() && job.accept_missing) {
        totals_.rows_missing += left.size();  // they stay `missing`: the caller's own
        left.clear();
    }
    running.open = std::move(left);
    if (running.open.empty()) {
        running.stuck = running.stuck_told = false;
    } else if (!std::exchange(running.busy, {}).empty()) {
        assign_again(id, tick_interval);  // nobody else has them: a busy worker gets a moment, then it is asked again
    } else if (!running.stuck) {
        running.stuck = true;
        running.stuck_since = network_.loop().now();
    }
    std::vector<std::pair<const Holder*, std::vector<uint32_t>>> requests;
    for (size_t h = 0; h < holders.size(); ++h) {
        if (share[h].empty()) continue;
        for (auto& pairs : cut_share(job, std::move(share[h]), peers_[holders[h].peer]->max_request_bytes()))
            requests.emplace_back(&holders[h], std::move(pairs));
    }
    running.attempt += !requests.empty();
    // Counted before the first is sent: a request may fail at once, and the job must not look finished then.
    running.parts += requests.size();
    for (auto& [holder, pairs] : requests) {
        send_part(id, running, holder->peer, holder->offer, std::move(pairs));
        if (!jobs_.contains(id)) return;
    }
    if (running.parts == 0 && running.open.empty()) finish(id, {});
}

void Dispatcher::send_part(uint64_t id, Running& running, uint32_t peer, uint32_t offer, std::vector<uint32_t> pairs) {
    Part part{id, peer,
              plan_request(running.job, std::move(pairs), peers_[peer]->offers()[offer].expert_begin, settings_.split)};
    part.slice = slice_of({peer, offer});
    hedges_.earn();
    const uint64_t request = next_id_;  // known before it is sent: it may fail at once
    wire::ComputeFrame frame = frame_of(running.job, part.plan);
    part.plan.compute = {};
    parts_.emplace(request, std::move(part));
    send_frame(running, {peer, offer}, std::move(frame));
    watch(request);
}

/// Sends a request whose id is next_id_.
void Dispatcher::send_frame(const Running& running, Place place, wire::ComputeFrame frame) {
    PeerRequest request;
    request.id = next_id_++;
    request.attempt = running.attempt;
    request.layer = running.job.layer;
    request.offer = place.offer;
    request.program = running.job.program;
    request.frame = std::move(frame);
    peers_[place.peer]->send(std::move(request));
}

std::map<uint64_t, Dispatcher::Part>::iterator Dispatcher::drop(std::map<uint64_t, Part>::iterator part) {
    network_.loop().cancel(part->second.late);
    return parts_.erase(part);
}

void Dispatcher::request_done(Peer&, uint64_t id, Floats& rows) {
    if (checks_.contains(id)) return check_by_replica(id, {}, rows);
    const auto found = parts_.find(id);
    if (found == parts_.end()) return;
    Part part = std::move(found->second);
    drop(found);
    end_race(id, part);
    const auto job = jobs_.find(part.job);
    if (job == jobs_.end()) return;
    const Audit audit = audit_wanted(part.peer, part.plan.pairs.size());
    if (audit == Audit::none) {
        accept(part.peer, part.slice, part.plan.pairs.size());
        return use(part.job, part.plan, rows);
    }
    Check check{part.job,
                part.peer,
                peers_[part.peer]->connection(),
                job->second.job.layer,
                job->second.job.program->n_out,
                std::move(part.plan),
                std::move(rows),
                {},
                part.slice};
    if (audit == Audit::before_use) {
        if (!start_check(job->second, check)) check_done(std::move(check), nothing_to_compare());
        return;
    }
    Check later = check;
    later.job = 0;
    if (!start_check(job->second, std::move(later))) accept(check.peer, check.slice, check.plan.pairs.size());
    use(check.job, check.plan, check.rows);
}

/// Rows that are right, as far as anybody can tell.
void Dispatcher::use(uint64_t id, const RequestPlan& plan, std::span<const float> rows) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) return;
    Running& running = job->second;
    place_rows(plan, rows, running.job.program->n_out, running.result);
    totals_.rows_remote += plan.pairs.size();
    running.parts -= 1;
    if (running.parts == 0 && running.open.empty()) finish(id, {});
}

void Dispatcher::request_failed(Peer& peer, uint64_t id, const Status& status) {
    if (checks_.contains(id)) return check_by_replica(id, status, {});
    const auto found = parts_.find(id);
    if (found == parts_.end()) return;
    Part part = std::move(found->second);
    drop(found);
    const auto job = jobs_.find(part.job);
    if (job == jobs_.end()) return;
    if (status.code() == Code::exhausted)
        job->second.unable.insert(part.peer);
    else if (peer.ready())
        job->second.busy.insert(part.peer);
    // The other one of two is still at it.
    if (const auto twin = parts_.find(part.twin); twin != parts_.end()) {
        twin->second.twin = 0;
        return;
    }
    ask_again(part.job, part.plan.pairs, part.peer, status);
}

/// Pairs that this worker will not compute are open again.
void Dispatcher::ask_again(uint64_t id, const std::vector<uint32_t>& pairs, uint32_t peer, const Status& why) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end()) return;
    Running& running = job->second;
    running.last_trouble = why.in("worker " + peers_[peer]->address().str());
    running.parts -= 1;
    running.open.insert(running.open.end(), pairs.begin(), pairs.end());
    std::sort(running.open.begin(), running.open.end());
    totals_.failovers += 1;
    // Later, not now: the peer is in the middle of telling several requests, and its state has yet to settle.
    assign_again(id, Duration::zero());
}

void Dispatcher::assign_again(uint64_t id, Duration delay) {
    network_.loop().after(delay, [this, id, alive = alive_] {
        if (*alive) assign(id);
    });
}

void Dispatcher::peer_changed(Peer&) {
    // Called from inside a peer: act when its stack is gone.
    network_.loop().post([this, alive = alive_] {
        if (!*alive) return;
        go_on_if_settled();
        std::vector<uint64_t> stuck;
        for (const auto& [id, running] : jobs_) {
            if (running.stuck) stuck.push_back(id);
        }
        for (uint64_t id : stuck)
            assign(id);
    });
}

void Dispatcher::keep_ticking() {
    if (ticker_ == 0) ticker_ = network_.loop().after(tick_interval, [this] { tick(); });
}

void Dispatcher::tick() {
    ticker_ = 0;
    for (auto& peer : peers_)
        peer->tick();
    look_at_checks();
    go_on_if_settled();
    tell_stuck();
    end_hopeless();
    const bool leaving = end_retired();
    const bool watched =
        std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer->needs_watching(); });
    if (!jobs_.empty() || !waiting_for_settled_.empty() || watched || leaving) keep_ticking();
}

/// Notes whether checks of workers get on, and says once whom we wait for.
void Dispatcher::look_at_checks() {
    if (check_ == nullptr) return;
    const Instant now = network_.loop().now();
    if (const uint64_t progress = check_->progress(); progress != std::exchange(check_progress_, progress))
        check_moved_ = now;
    if (now - first_connect_ < settings_.settle_timeout) return;
    const bool waited_for = !waiting_for_settled_.empty() ||
                            std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second.stuck; });
    if (!waited_for) return;
    std::string coming;
    for (const auto& peer : peers_) {
        if (is_coming(*peer)) coming += (coming.empty() ? "" : ", ") + peer->address().str();
    }
    if (!coming.empty() && coming != coming_)
        log_info("waiting for {}: the slices there are being compared with the model", coming);
    coming_ = std::move(coming);
}

void Dispatcher::end_hopeless() {
    const Instant now = network_.loop().now();
    const bool is_stopped = stopped();
    std::vector<uint64_t> hopeless;
    for (const auto& [id, running] : jobs_) {
        const auto comes = [&, layer = running.job.layer](const auto& peer) {
            return (is_coming(*peer) || peer->may_wake()) &&
                   std::any_of(peer->offers().begin(), peer->offers().end(), [&](const auto& offer) {
                       return layer >= offer.layer_begin && layer < offer.layer_end;
                   });
        };
        const bool is_over = running.stuck && now - running.stuck_since >= settings_.no_holder &&
                             std::none_of(peers_.begin(), peers_.end(), comes);
        if (is_stopped || is_over) hopeless.push_back(id);
    }
    for (uint64_t id : hopeless) {
        if (const auto job = jobs_.find(id); job != jobs_.end())
            finish(id, is_stopped ? Status(Code::unavailable, "interrupted") : nobody_holds(job->second));
    }
}

Status Dispatcher::nobody_holds(const Running& running) const {
    std::vector<int> experts;
    for (uint32_t pair : running.open)
        experts.push_back(running.job.expert[pair]);
    std::sort(experts.begin(), experts.end());
    experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    std::string list;
    for (size_t e = 0; e < experts.size() && e < 16; ++e)
        list += fmt::format("{}{}", e == 0 ? "" : ", ", experts[e]);
    if (experts.size() > 16) list += fmt::format(" and {} more", experts.size() - 16);
    std::string why;
    for (const auto& peer : peers_) {
        if (!peer->trouble().ok())
            why += fmt::format("; worker {}: {}", peer->address().str(), peer->trouble().message());
    }
    if (why.empty() && !running.last_trouble.ok()) why = "; " + running.last_trouble.message();
    if (peers_.empty()) why = "; no workers are configured";
    return {Code::unavailable,
            fmt::format("layer {}: no worker computes expert{} {} now, and local weights are not used{}",
                        running.job.layer, experts.size() == 1 ? "" : "s", list, why)};
}

void Dispatcher::finish(uint64_t id, Status status) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    Running running = std::move(found->second);
    jobs_.erase(found);
    for (auto part = parts_.begin(); part != parts_.end();) {
        if (part->second.job == id) {
            peers_[part->second.peer]->forget(part->first);
            part = drop(part);
        } else {
            ++part;
        }
    }
    drop_checks(id);
    running.done(std::move(status), std::move(running.result));
}

DispatchStats Dispatcher::stats() const {
    DispatchStats stats = totals_;
    stats.peers = gone_;
    for (size_t p = 0; p < peers_.size(); ++p) {
        stats.peers.push_back(peers_[p]->stats());
        stats.round_trip_p50 = std::max(stats.round_trip_p50, round_trips_[p]->quantile(0.5));
        stats.round_trip_p99 = std::max(stats.round_trip_p99, round_trips_[p]->quantile(0.99));
    }
    return stats;
}

std::vector<HolderInfo> Dispatcher::holders() const {
    std::vector<HolderInfo> holders;
    for (const auto& peer : peers_) {
        if (!peer->ready()) continue;
        for (const wire::SliceOffer& offer : peer->offers()) {
            holders.push_back({peer->address().str(), peer->numeric_class(), offer.layer_begin, offer.layer_end,
                               offer.expert_begin, offer.expert_end});
        }
    }
    return holders;
}

}  // namespace linkcpp::dispatch
