#include "dispatch/peer.h"

#include "base/log.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>

namespace linkcpp::dispatch {

Peer::Peer(net::Network& network, const Settings& settings, PeerCheck* check, PeerObserver& observer,
           net::Address address, LatencyWindow& round_trips)
    : network_(network), settings_(settings), check_(check), observer_(observer), address_(std::move(address)),
      round_trips_(round_trips), backoff_(settings.backoff_min),
      jitter_(static_cast<unsigned>(std::hash<std::string>{}(address_.str()))) {
    stats_.address = address_.str();
}

Peer::~Peer() {
    *alive_ = false;
    network_.loop().cancel(timer_);
}

void Peer::start() {
    if (state_ == State::idle) connect();
}

void Peer::connect() {
    state_ = State::connecting;
    const uint64_t connection = ++connection_;
    // A connection that is made but whose handshake never ends is as dead as one that is not made.
    timer_ = network_.loop().after(settings_.connect_timeout, [this, connection] {
        if (connection == connection_ && (state_ == State::connecting || state_ == State::handshake)) {
            lose({Code::timeout, "no answer to the handshake"}, false);
        }
    });
    network_.connect(address_, settings_.connect_timeout,
                     [this, connection, alive = alive_](Result<std::unique_ptr<net::Link>> link) {
                         if (!*alive || connection != connection_ || state_ != State::connecting) return;
                         if (!link.ok()) return lose(link.status(), false);
                         connected(std::move(*link));
                     });
}

void Peer::connected(std::unique_ptr<net::Link> link) {
    state_ = State::handshake;
    link_ = std::move(link);
    session_ = std::make_unique<wire::Session>(wire::Side::backbone, settings_.max_payload);
    last_heard_ = network_.loop().now();
    sent_total_ = acknowledged_ = request_end_ = owed_credit_ = 0;
    link_->on_drained = [this] { flush_waiting(); };
    link_->room = [this] { return session_->room(); };
    link_->on_bytes = [this](ByteSpan bytes) {
        last_heard_ = network_.loop().now();
        stats_.bytes_in += bytes.size();
        const bool was_silent = std::exchange(silent_, false);
        const uint64_t connection = connection_;
        const Status status = session_->feed(bytes, *this);
        if (connection != connection_) return;  // a handler closed it
        if (!status.ok()) return lose(status.in("it broke the protocol"), true);
        // Nothing else that a worker sends is as large: rows are coming, however slowly.
        if (session_->reader().unfinished() > wire::max_handshake_payload) note_progress(last_heard_);
        if (was_silent && state_ == State::ready) observer_.peer_changed(*this);
    };
    link_->on_closed = [this](Status status) { lose(status, false); };
    wire::Hello hello;
    hello.max_payload = settings_.max_payload;
    hello.credit = settings_.result_credit;
    hello.build = settings_.build;
    hello.numeric_class = settings_.numeric_class;
    hello_sent_ = network_.loop().now();
    send_frame(wire::encode(hello));
}

/// Ends the connection and all that belongs to it, but for the requests.
void Peer::drop_link() {
    ++connection_;
    network_.loop().cancel(timer_);
    // The link may be on the stack right now (its callback called us); net::Link allows that.
    link_.reset();
    canaries_.clear();
    programs_.clear();
    silent_ = draining_ = false;
}

void Peer::lose(const Status& reason, bool refused) {
    const bool was_ready = state_ == State::ready;
    drop_link();
    state_ = refused ? State::refused : State::backing_off;
    trouble_ = reason;
    settled_ = true;
    if (reason.message() != last_reason_) {
        last_reason_ = reason.message();
        const char* what = refused ? "is not used" : was_ready ? "is lost" : "cannot be reached";
        warn(std::string(what) + ": " + reason.message());
    }
    Duration delay = !refused ? backoff_ : std::exchange(liar_, false) ? settings_.retry_liar : settings_.retry_refused;
    backoff_ = std::min(2 * backoff_, settings_.backoff_max);
    delay += Duration(std::uniform_int_distribution<int64_t>(0, delay.count() / 4)(jitter_));
    timer_ = network_.loop().after(delay, [this] { connect(); });
    fail_all(reason);
    observer_.peer_changed(*this);
}

/// A connection that comes and goes must not fill the log.
void Peer::warn(const std::string& what) {
    const Instant now = network_.loop().now();
    if (last_warning_ && now - *last_warning_ < settings_.warn_every) {
        n_unsaid_ += 1;
        return log_debug("worker {} {}", address_.str(), what);
    }
    last_warning_ = now;
    const size_t n_unsaid = std::exchange(n_unsaid_, 0);
    log_warning("worker {} {}{}", address_.str(), what,
                n_unsaid == 0 ? "" : fmt::format(" (and {} warnings since the last one)", n_unsaid));
}

void Peer::fail_all(const Status& reason) {
    auto pending = std::exchange(pending_, {});
    auto waiting = std::exchange(waiting_, {});
    stats_.failures += pending.size() + waiting.size();
    for (auto& [id, entry] : pending) {
        if (!entry.canary) observer_.request_failed(*this, id, reason);
    }
    for (auto& [request, canary] : waiting) {
        if (!canary) observer_.request_failed(*this, request.id, reason);
    }
}

void Peer::quarantine(const Status& reason) {
    liar_ = true;
    last_warning_.reset();  // this one must be seen
    lose(reason, true);
}

void Peer::on_welcome(const wire::Welcome& welcome) {
    if (link_ == nullptr) return;
    network_.loop().cancel(timer_);
    welcome_ = welcome;
    // The first thing known about this link: on a slow one 250 ms of silence mean nothing.
    round_trips_.add(network_.loop().now() - hello_sent_);
    credit_ = wire::CreditWindow(welcome.credit);
    stats_.numeric_class = welcome.numeric_class;
    state_ = State::admission;
    welcomed_ = network_.loop().now();
    if (check_ == nullptr) return become_ready();
    check_->admit(address_.str(), welcome,
                  [this, connection = connection_, alive = alive_,
                   &loop = network_.loop()](Result<std::vector<Canary>> admitted) {
                      loop.post([this, connection, alive, admitted = std::move(admitted)]() mutable {
                          if (!*alive || connection != connection_) return;
                          if (!admitted.ok()) return lose(admitted.status(), true);
                          run_canaries(std::move(*admitted));
                      });
                  });
}

void Peer::run_canaries(std::vector<Canary> canaries) {
    canaries_.assign(std::make_move_iterator(canaries.begin()), std::make_move_iterator(canaries.end()));
    next_canary();
}

void Peer::next_canary() {
    if (canaries_.empty()) return become_ready();
    Canary& canary = canaries_.front();
    const auto offer = std::find_if(welcome_.slices.begin(), welcome_.slices.end(),
                                    [&](const auto& o) { return o.slice == canary.slice; });
    if (offer == welcome_.slices.end()) return lose({Code::mismatch, "it does not offer the slice to test"}, true);
    PeerRequest request;
    request.id = canary_id_--;
    request.layer = canary.layer;
    request.offer = static_cast<uint32_t>(offer - welcome_.slices.begin());
    request.program = std::make_shared<ProgramCode>(canary.program);
    wire::Compute compute;
    compute.n_in = canary.program.n_in;
    compute.n_x = compute.n_rows_out = static_cast<uint32_t>(canary.expert.size());
    compute.expert = canary.expert;
    for (uint32_t p = 0; p < compute.n_x; ++p)
        compute.x_row.push_back(p);
    request.frame = wire::ComputeFrame(compute);
    request.frame.add_rows(canary.x);
    transmit(std::move(request), [this](Result<Floats> rows) {
        if (!rows.ok()) return lose(rows.status().in("its test computation failed"), true);
        const Status verdict = canaries_.front().judge(*rows);
        canaries_.pop_front();
        if (!verdict.ok()) return lose(verdict, true);
        next_canary();
    });
}

void Peer::become_ready() {
    state_ = State::ready;
    settled_ = true;
    trouble_ = {};
    last_reason_.clear();
    backoff_ = settings_.backoff_min;
    observer_.peer_changed(*this);
}

void Peer::retire() {
    if (std::exchange(retired_, true)) return;
    trouble_ = {Code::unavailable, "it has left the swarm"};
}

void Peer::come_back() {
    if (!std::exchange(retired_, false)) return;
    if (state_ == State::ready) trouble_ = {};
    if (state_ == State::idle) connect();
}

bool Peer::end_if_idle() {
    if (!retired_ || !pending_.empty() || !waiting_.empty()) return false;
    if (state_ == State::idle) return true;
    drop_link();
    state_ = State::idle;
    settled_ = true;
    return true;
}

Duration Peer::expected() const {
    return round_trips_.quantile(0.5) * static_cast<int64_t>(1 + pending_.size() + waiting_.size());
}

Duration Peer::usual(size_t n_pairs) const {
    const auto found = by_size_.find(std::bit_width(n_pairs));
    if (found == by_size_.end() || found->second.count() < settings_.hedge_after_samples) return {};
    return found->second.quantile(0.95);
}

PeerStats Peer::stats() const {
    static constexpr const char* names[] = {"idle",  "connecting",  "handshake", "admission",
                                            "ready", "backing off", "refused"};
    PeerStats stats = stats_;
    stats.state = names[static_cast<size_t>(state_)];
    return stats;
}

}  // namespace linkcpp::dispatch
