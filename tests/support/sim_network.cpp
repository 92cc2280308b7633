#include "support/sim_network.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <optional>

namespace linkcpp::test {

// --- the loop --------------------------------------------------------------------------------------------------------

void SimLoop::post(Task task) {
    std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
}

void SimLoop::take_posted() {
    std::vector<Task> tasks;
    {
        std::lock_guard lock(mutex_);
        tasks.swap(posted_);
    }
    for (Task& task : tasks)
        after(Duration(0), std::move(task));
}

net::Loop::TimerId SimLoop::after(Duration delay, Task task) {
    const TimerId id = ++last_;
    const Instant when = now_ + std::max(delay, Duration(0));
    events_.emplace(std::pair(when, id), std::move(task));
    when_.emplace(id, when);
    return id;
}

void SimLoop::cancel(TimerId timer) {
    auto found = when_.find(timer);
    if (found == when_.end()) return;
    events_.erase({found->second, timer});
    when_.erase(found);
}

bool SimLoop::run_next(Instant limit) {
    take_posted();
    if (events_.empty() || events_.begin()->first.first > limit) return false;
    auto event = events_.extract(events_.begin());
    when_.erase(event.key().second);
    now_ = event.key().first;
    event.mapped()();
    return true;
}

bool SimLoop::run_until(const std::function<bool()>& done, Duration limit) {
    const Instant end = now_ + limit;
    while (!done()) {
        if (!run_next(end)) return false;
    }
    return true;
}

void SimLoop::run_for(Duration duration) {
    const Instant end = now_ + duration;
    while (run_next(end)) {
    }
    now_ = end;
}

// --- connections -----------------------------------------------------------------------------------------------------

namespace {
constexpr size_t piece_bytes = 64 * 1024;
constexpr size_t window_bytes = 256 * 1024;
}  // namespace

/// One direction of a connection. A chunk is queued, then leaves (bandwidth), then is under way (latency), then
/// lies in the receiver's buffer, then is delivered.
struct Pipe {
    std::deque<Bytes> queued;
    size_t front_taken = 0;  // bytes of queued.front() that left or are leaving
    bool sending = false;    // a chunk is leaving
    size_t leaving = 0;      // its size
    size_t unsent = 0;       // bytes queued or leaving
    size_t in_window = 0;    // bytes that left and were not delivered
    std::deque<Bytes> arrived;
    bool ended = false;  // the sender closed: after everything queued, the receiver sees the end
    bool end_sent = false, end_arrived = false;
    uint64_t n_sent = 0;
    std::optional<uint64_t> cut_at;  // in terms of n_sent
    std::optional<std::pair<uint64_t, int>> flip_at;
};

struct SimConnection : std::enable_shared_from_this<SimConnection> {
    SimConnection(SimNetwork& net, net::Address where) : network(net), address(std::move(where)) {}

    SimNetwork& network;
    net::Address address;
    // [0]: the connecting side, [1]: the listening side. pipe[s] carries what side s receives.
    class SimLink* link[2] = {nullptr, nullptr};
    bool reading[2] = {true, true};
    bool open[2] = {true, true};
    std::vector<std::shared_ptr<const void>> kept[2];  // by what each side sent and is not rid of yet
    Pipe pipe[2];
    bool broken = false;  // both ends know, nothing happens any more

    const Path& path() { return network.paths_[address]; }
    SimLoop& loop() { return *network.loop_; }
    bool stalled(int to) {
        return path().partition || (to == 1 ? path().stall_to_listener : path().stall_from_listener);
    }

    void send(int to, Bytes bytes) {
        Pipe& p = pipe[to];
        p.unsent += bytes.size();
        p.queued.push_back(std::move(bytes));
        pump(to);
    }

    Bytes next_piece(Pipe& p) {
        Bytes& front = p.queued.front();
        size_t size = std::min(front.size() - p.front_taken, piece_bytes);
        // A slow link moves small packets, not 64 KB every other second.
        if (path().bytes_per_second > 0)
            size = std::min(size, std::max<size_t>(1460, static_cast<size_t>(path().bytes_per_second / 20)));
        if (p.cut_at) size = std::min<size_t>(size, *p.cut_at - p.n_sent);
        Bytes piece(front.data() + p.front_taken, front.data() + p.front_taken + size);
        p.front_taken += size;
        if (p.front_taken == front.size()) {
            p.queued.pop_front();
            p.front_taken = 0;
        }
        if (p.flip_at && p.flip_at->first >= p.n_sent && p.flip_at->first < p.n_sent + size) {
            piece[p.flip_at->first - p.n_sent] ^= static_cast<uint8_t>(1 << p.flip_at->second);
        }
        p.n_sent += size;
        return piece;
    }

    /// Starts whatever can start in the direction of side `to`.
    void pump(int to) {
        Pipe& p = pipe[to];
        if (broken || p.sending || stalled(to)) return;
        if (p.cut_at && p.n_sent >= *p.cut_at) {
            later(path().latency, [this] { break_now(); });
            p.sending = true;  // nothing leaves any more
            return;
        }
        if (p.queued.empty()) {
            if (p.ended && !p.end_sent) {
                p.end_sent = true;
                later(path().latency, [this, to] { arrive_end(to); });
            }
            return;
        }
        if (p.in_window >= window_bytes) return;
        Bytes piece = next_piece(p);
        p.sending = true;
        const size_t size = piece.size();
        p.leaving = size;
        const double rate = path().bytes_per_second;
        const Duration leaving(rate > 0 ? static_cast<int64_t>(1e9 * static_cast<double>(size) / rate) : 0);
        later(leaving, [this, to, size, latency = path().latency, moved = std::move(piece)]() mutable {
            Pipe& q = pipe[to];
            q.sending = false;
            q.leaving = 0;
            q.unsent -= size;
            q.in_window += size;
            later(latency, [this, to, piece_again = std::move(moved)]() mutable {
                pipe[to].arrived.push_back(std::move(piece_again));
                deliver(to);
            });
            pump(to);
            if (q.unsent == 0) {
                kept[1 - to].clear();
                tell_drained(1 - to);
            }
        });
    }

    /// Runs a step of this connection after a while, unless it was broken meanwhile.
    void later(Duration delay, std::function<void()> step) {
        loop().after(delay, [self = shared_from_this(), moved = std::move(step)] {
            if (!self->broken) moved();
        });
    }

    void arrive_end(int to) {
        pipe[to].end_arrived = true;
        deliver(to);
    }

    void deliver(int to);
    void tell_drained(int side);
    void tell_closed(int side, Status status);
    void break_now();
    void close(int side, bool flush);
};

class SimLink final : public net::Link {
  public:
    SimLink(std::shared_ptr<SimConnection> connection, int side) : connection_(std::move(connection)), side_(side) {
        connection_->link[side_] = this;
    }
    ~SimLink() override {
        if (connection_->open[side_]) close(false);
        connection_->link[side_] = nullptr;
    }
    void send(Bytes bytes) override {
        if (connection_->open[side_] && !connection_->broken && !bytes.empty()) {
            connection_->send(1 - side_, std::move(bytes));
        }
    }
    void send_shared(ByteSpan bytes, std::shared_ptr<const void> owner) override {
        if (connection_->open[side_] && !connection_->broken) connection_->kept[side_].push_back(std::move(owner));
        send(Bytes(bytes.begin(), bytes.end()));
    }
    size_t unsent() const override { return connection_->pipe[1 - side_].unsent; }
    size_t unacknowledged() const override {
        return connection_->pipe[1 - side_].unsent + connection_->pipe[1 - side_].in_window;
    }
    void close(bool flush) override { connection_->close(side_, flush); }
    void set_reading(bool reading) override {
        connection_->reading[side_] = reading;
        if (reading) {
            connection_->later(Duration(0), [self = connection_.get(), side = side_] { self->deliver(side); });
        }
    }
    std::string peer() const override {
        return side_ == 0 ? connection_->address.str() : "peer-of-" + connection_->address.str();
    }

  private:
    std::shared_ptr<SimConnection> connection_;
    int side_;
};

void SimConnection::deliver(int to) {
    auto self = shared_from_this();
    Pipe& p = pipe[to];
    while (!p.arrived.empty()) {
        if (open[to] && !reading[to]) return;
        Bytes bytes = std::move(p.arrived.front());
        p.arrived.pop_front();
        p.in_window -= bytes.size();
        network.delivered_[{address, to == 1}] += bytes.size();
        if (open[to] && link[to] && link[to]->on_bytes) {
            // As in the real network: the callback may destroy its link.
            auto callback = std::move(link[to]->on_bytes);
            link[to]->on_bytes = nullptr;
            callback(bytes);
            if (link[to] && !link[to]->on_bytes) link[to]->on_bytes = std::move(callback);
        }
        if (broken) return;
        pump(to);
    }
    if (p.end_arrived && (reading[to] || !open[to])) {
        tell_closed(to, {Code::unavailable, fmt::format("the other end of {} closed the connection", address.str())});
    }
}

void SimConnection::tell_drained(int side) {
    if (broken || !open[side] || !link[side] || !link[side]->on_drained) return;
    auto callback = std::move(link[side]->on_drained);
    link[side]->on_drained = nullptr;
    callback();
    if (link[side] && !link[side]->on_drained) link[side]->on_drained = std::move(callback);
}

void SimConnection::tell_closed(int side, Status status) {
    if (!open[side]) return;
    open[side] = false;
    if (!link[side]) return;
    auto callback = std::move(link[side]->on_closed);
    link[side]->on_closed = nullptr;
    if (callback) callback(std::move(status));
}

void SimConnection::break_now() {
    if (broken) return;
    broken = true;
    auto self = shared_from_this();
    for (int side : {0, 1}) {
        pipe[side].unsent = 0;
        tell_closed(side, {Code::io, fmt::format("the connection to {} broke", address.str())});
    }
}

void SimConnection::close(int side, bool flush) {
    open[side] = false;
    Pipe& out = pipe[1 - side];
    if (broken) return;
    if (!flush) {
        out.queued.clear();
        out.front_taken = 0;
        out.unsent = out.leaving;
    }
    if (out.ended) return;
    out.ended = true;
    pump(1 - side);
    // What the other side still sends goes nowhere.
    later(Duration(0), [this, side] { deliver(side); });
}

// --- the network -----------------------------------------------------------------------------------------------------

struct SimNetwork::ListenerState {
    std::function<void(std::unique_ptr<net::Link>)> on_accept;
    bool open = true;
};

class SimNetwork::SimListener final : public net::Listener {
  public:
    SimListener(SimNetwork& network, net::Address address) : network_(network), address_(std::move(address)) {}
    ~SimListener() override {
        auto found = network_.listeners_.find(address_);
        if (found == network_.listeners_.end()) return;
        found->second->open = false;
        network_.listeners_.erase(found);
    }
    net::Address address() const override { return address_; }

  private:
    SimNetwork& network_;
    net::Address address_;
};

SimNetwork::SimNetwork() : loop_(std::make_shared<SimLoop>()) {}

SimNetwork::~SimNetwork() {
    // Links live in events and in the test's hands; none may reach back into this object.
    for (auto& [address, all] : connections_) {
        for (auto& weak : all) {
            if (auto connection = weak.lock()) connection->broken = true;
        }
    }
}

void SimNetwork::connect(const net::Address& address, Duration timeout,
                         std::function<void(Result<std::unique_ptr<net::Link>>)> done) {
    const Path& way = paths_[address];
    const Duration round_trip = 2 * way.latency;
    if (way.partition || round_trip > timeout) {
        loop_->after(timeout, [done, address] {
            done({Code::timeout, fmt::format("no connection to {} in time", address.str())});
        });
        return;
    }
    loop_->after(way.latency, [this, address, done = std::move(done)] {
        auto found = listeners_.find(address);
        const Path& path_now = paths_[address];
        if (path_now.refuse || found == listeners_.end()) {
            loop_->after(path_now.latency, [done, address] {
                done({Code::unavailable, fmt::format("cannot connect to {}: refused", address.str())});
            });
            return;
        }
        auto connection = std::make_shared<SimConnection>(*this, address);
        connections_[address].push_back(connection);
        std::unique_ptr<net::Link> near = std::make_unique<SimLink>(connection, 0);
        loop_->after(path_now.latency, [done, link = std::make_shared<std::unique_ptr<net::Link>>(std::move(near))] {
            done(std::move(*link));
        });
        // As in the real network, the callback may destroy its listener.
        auto state = found->second;
        state->on_accept(std::make_unique<SimLink>(connection, 1));
    });
}

Result<std::unique_ptr<net::Listener>> SimNetwork::listen(const net::Address& address,
                                                          std::function<void(std::unique_ptr<net::Link>)> on_accept) {
    net::Address bound = address;
    while (bound.port == 0 || (address.port == 0 && listeners_.contains(bound)))
        bound.port = next_port_++;
    if (listeners_.contains(bound)) return {Code::io, fmt::format("cannot listen on {}: in use", bound.str())};
    auto state = std::make_shared<ListenerState>();
    state->on_accept = std::move(on_accept);
    listeners_[bound] = state;
    return Result<std::unique_ptr<net::Listener>>(std::make_unique<SimListener>(*this, bound));
}

void SimNetwork::release(const net::Address& address) {
    for (auto& weak : connections_[address]) {
        auto connection = weak.lock();
        if (!connection || connection->broken) continue;
        connection->pump(0);
        connection->pump(1);
    }
}

void SimNetwork::cut(const net::Address& address) {
    // Breaking calls back, and the callbacks may connect again.
    auto now = connections_[address];
    for (auto& weak : now) {
        if (auto connection = weak.lock()) connection->break_now();
    }
}

void SimNetwork::cut_after(const net::Address& address, bool to_listener, uint64_t n_bytes) {
    for (auto& weak : connections_[address]) {
        if (auto connection = weak.lock()) {
            Pipe& pipe = connection->pipe[to_listener ? 1 : 0];
            pipe.cut_at = pipe.n_sent + n_bytes;
            connection->pump(to_listener ? 1 : 0);
        }
    }
}

void SimNetwork::flip_bit_after(const net::Address& address, bool to_listener, uint64_t n_bytes, int bit) {
    for (auto& weak : connections_[address]) {
        if (auto connection = weak.lock()) {
            Pipe& pipe = connection->pipe[to_listener ? 1 : 0];
            pipe.flip_at = {pipe.n_sent + n_bytes, bit & 7};
        }
    }
}

size_t SimNetwork::connections(const net::Address& address) const {
    auto found = connections_.find(address);
    if (found == connections_.end()) return 0;
    return static_cast<size_t>(std::count_if(found->second.begin(), found->second.end(), [](const auto& weak) {
        auto connection = weak.lock();
        return connection && connection->open[0] && connection->open[1] && !connection->broken;
    }));
}

size_t SimNetwork::unsent_to(const net::Address& address) const {
    size_t unsent = 0;
    const auto found = connections_.find(address);
    if (found == connections_.end()) return 0;
    for (const auto& weak : found->second) {
        const auto connection = weak.lock();
        if (connection && !connection->broken) unsent += connection->pipe[1].unsent;
    }
    return unsent;
}

uint64_t SimNetwork::bytes_delivered(const net::Address& address, bool to_listener) const {
    auto found = delivered_.find({address, to_listener});
    return found == delivered_.end() ? 0 : found->second;
}

}  // namespace linkcpp::test
