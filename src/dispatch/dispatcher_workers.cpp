// Workers that come and go while jobs run, and what each has done. A place in peers_ keeps its number as long as anything
// refers to it; when a worker has gone for good another one gets its place.

#include "base/log.h"
#include "dispatch/dispatcher.h"

#include <algorithm>

namespace linkcpp::dispatch {

namespace {
constexpr Duration tell_stuck_after = 2s;
constexpr size_t max_remembered = 1000;
}  // namespace

void Dispatcher::set_workers(std::vector<net::Address> workers) {
    network_.loop().post([this, alive = alive_, workers = std::move(workers)]() mutable {
        if (*alive) update_workers(std::move(workers));
    });
}

void Dispatcher::update_workers(std::vector<net::Address> workers) {
    for (const auto& peer : peers_) {
        const auto wanted = std::find(workers.begin(), workers.end(), peer->address());
        if (wanted == workers.end()) {
            peer->retire();
            continue;
        }
        peer->come_back();
        workers.erase(wanted);
    }
    for (net::Address& address : workers) {
        add_worker(std::move(address));
    }
    if (first_connect_.count() >= 0) {
        for (const auto& peer : peers_) {
            if (!peer->retired()) peer->start();
        }
    }
    // Jobs that wait for a holder look again when one is ready; those that wait for one that left now know better.
    go_on_if_settled();
    keep_ticking();
}

void Dispatcher::add_worker(net::Address address) {
    const auto place = free_place();
    const uint32_t p = place.value_or(static_cast<uint32_t>(peers_.size()));
    if (!place) {
        peers_.emplace_back();
        round_trips_.emplace_back();
    } else {
        remember(peers_[p]->stats());
    }
    peers_[p].reset();  // before what it refers to
    round_trips_[p] = std::make_unique<LatencyWindow>();
    PeerObserver& self = *this;
    peers_[p] = std::make_unique<Peer>(network_, settings_, check_, self, std::move(address), *round_trips_[p]);
    if (first_connect_.count() >= 0) late_.insert(p);
    audited_.erase(p);
    for (auto& [id, running] : jobs_) {
        running.unable.erase(p);
        running.busy.erase(p);
    }
}

/// Statistics of a worker whose place another one gets. Of very many, the later ones are added up.
void Dispatcher::remember(PeerStats stats) {
    if (gone_.size() >= max_remembered) stats.address = "others";
    const auto same =
        std::find_if(gone_.begin(), gone_.end(), [&](const auto& one) { return one.address == stats.address; });
    if (same == gone_.end()) return gone_.push_back(std::move(stats));
    same->requests += stats.requests;
    same->rows += stats.rows;
    same->bytes_out += stats.bytes_out;
    same->bytes_in += stats.bytes_in;
    same->failures += stats.failures;
    same->queued += stats.queued;
    same->computed += stats.computed;
}

/// The place of a worker that has gone for good.
std::optional<uint32_t> Dispatcher::free_place() const {
    const auto is_of = [](uint32_t p) { return [p](const auto& entry) { return entry.second.peer == p; }; };
    for (uint32_t p = 0; p < peers_.size(); ++p) {
        const bool earned =
            std::any_of(accepted_.begin(), accepted_.end(), [p](const auto& e) { return e.first.first == p; });
        const bool judges =
            std::any_of(checks_.begin(), checks_.end(), [p](const auto& e) { return e.second.replica == p; });
        if (peers_[p]->ended() && !earned && !judges && std::none_of(parts_.begin(), parts_.end(), is_of(p)) &&
            std::none_of(checks_.begin(), checks_.end(), is_of(p)))
            return p;
    }
    return std::nullopt;
}

/// True while some worker that is not wanted any more still has something to answer.
bool Dispatcher::end_retired() {
    bool leaving = false;
    for (const auto& peer : peers_)
        leaving |= peer->retired() && !peer->ended() && !peer->end_if_idle();
    return leaving;
}

SliceRange Dispatcher::slice_of(Place place) const {
    const wire::SliceOffer& offer = peers_[place.peer]->offers()[place.offer];
    return {offer.layer_begin, offer.layer_end, offer.expert_begin, offer.expert_end};
}

void Dispatcher::accept(uint32_t peer, const SliceRange& slice, size_t n_pairs) { accepted_[{peer, slice}] += n_pairs; }

std::vector<AcceptedRows> Dispatcher::take_accepted_rows() {
    std::vector<AcceptedRows> all;
    for (const auto& [what, rows] : std::exchange(accepted_, {}))
        all.push_back({peers_[what.first]->address(), what.second, rows});
    return all;
}

/// Whoever waits longer than a moment learns what for.
void Dispatcher::tell_stuck() {
    if (settings_.no_holder <= 2 * tell_stuck_after) return;
    for (auto& [id, running] : jobs_) {
        if (!running.stuck || network_.loop().now() - running.stuck_since < tell_stuck_after) continue;
        if (!std::exchange(running.stuck_told, true)) {
            log_warning("waiting {} s for a worker: {}",
                        std::chrono::duration_cast<std::chrono::seconds>(settings_.no_holder).count(),
                        nobody_holds(running).message());
        }
    }
}

}  // namespace linkcpp::dispatch
