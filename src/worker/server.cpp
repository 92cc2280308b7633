#include "worker/server.h"

#include <algorithm>
#include <cassert>
#include <fmt/format.h>

namespace linkcpp::worker {

namespace {

/// Jobs given to the computer at a time: one that runs, and one so that it need not wait for this thread in between.
constexpr size_t max_computing = 2;
constexpr std::chrono::seconds tick_time{1};

}  // namespace

Server::Server(net::Network& network, Computer& computer, const std::vector<ServedSlice>& slices,
               ServerSettings settings)
    : network_(network), computer_(computer), slices_(slices), settings_(std::move(settings)), caps_(caps_for(slices)) {
    assert(slices.size() <= wire::max_slices_offered);
    tick();
}

Server::~Server() { *alive_ = false; }

Status Server::listen(const net::Address& address) {
    auto listener = network_.listen(address, [this](std::unique_ptr<net::Link> link) { accept(std::move(link)); });
    if (!listener.ok()) return listener.status();
    listener_ = std::move(*listener);
    return {};
}

net::Loop::TimerId Server::later(Duration delay, std::function<void()> task) {
    return network_.loop().after(delay, [alive = alive_, run = std::move(task)] {
        if (*alive) run();
    });
}

// --- connections -----------------------------------------------------------------------------------------------------

void Server::accept(std::unique_ptr<net::Link> link) {
    if (clients_.size() >= settings_.max_connections && !make_place()) {
        tell(LogLevel::warning, fmt::format("{} turned away: {} connections are open", link->peer(), clients_.size()));
        link->send(wire::encode(wire::GoAway{wire::RefuseCode::busy, "this worker has no connection left"}));
        return link->close(true);
    }
    const uint64_t id = ++last_id_;
    clients_.emplace(id, std::make_unique<Client>(*this, id, std::move(link)));
    limit_handshake(id);
}

bool Server::make_place() {
    const Instant now = network_.loop().now();
    for (const auto& [id, client] : clients_) {  // in the order of their coming
        if (client->established() || now - client->connected() < settings_.hello_grace) continue;
        end(id, {Code::unavailable, "no HELLO yet, and others are waiting"});
        return true;
    }
    return false;
}

void Server::tell(LogLevel level, const std::string& line) {
    if (log_limit_.allow(network_.loop().now())) log_line(level, line);
}

void Server::limit_handshake(uint64_t id) {
    later(settings_.handshake_limit, [this, id] {
        auto found = clients_.find(id);
        if (found != clients_.end() && !found->second->established()) {
            end(id, {Code::timeout, "no HELLO in time"});
        }
    });
}

void Server::end(uint64_t id, const Status& error) {
    auto found = clients_.find(id);
    if (found == clients_.end()) return;
    tell(LogLevel::warning, fmt::format("{} dropped: {}", found->second->peer(), error.message()));
    found->second->close_with(wire::Session::goaway_for(error));
    forget(id);
}

void Server::forget(uint64_t id) {
    auto found = clients_.find(id);
    if (found == clients_.end()) return;
    // Out of the map first: what its end starts must not find it.
    std::unique_ptr<Client> client = std::move(found->second);
    clients_.erase(found);
    for (const QueuedRequest& request : client->waiting())
        left(request.cost);
    client.reset();
    schedule();
    balance();
    check_drained();
}

void Server::tick() {
    std::vector<std::pair<uint64_t, std::string>> ending;
    const Instant now = network_.loop().now();
    for (auto& [id, client] : clients_) {
        if (std::string why = client->check(now); !why.empty()) ending.emplace_back(id, std::move(why));
    }
    for (const auto& [id, why] : ending)
        end(id, {Code::timeout, why});
    if (now < short_of_memory_until_) relieve();
    balance();
    if (const size_t n = log_limit_.left_out(now)) log_warning("{} more lines about connections were left out", n);
    later(tick_time, [this] { tick(); });
}

// --- requests --------------------------------------------------------------------------------------------------------

bool Server::has_room(const RequestCost& cost, const Client& client) {
    const uint64_t max_bytes = settings_.max_queued_payloads * caps_.max_payload;
    if (n_requests_ >= settings_.max_requests || payload_bytes_ + cost.payload_bytes > max_bytes ||
        client.payload_bytes() + cost.payload_bytes > max_bytes / 2) {
        return false;
    }
    const uint64_t needed = cost.all_bytes();
    if (client.has_requests() && client.held_bytes() + needed > settings_.max_peer_bytes / 2) return false;
    const bool alone =
        std::none_of(clients_.begin(), clients_.end(), [](const auto& entry) { return entry.second->has_requests(); });
    if (alone || held_bytes() + needed <= settings_.max_peer_bytes) return true;
    trim(&client);
    if (held_bytes() + needed <= settings_.max_peer_bytes) return true;
    short_of_memory_until_ = network_.loop().now() + 2 * settings_.pressure_limit;
    return false;
}

// --- memory ----------------------------------------------------------------------------------------------------------

uint64_t Server::held_bytes() const {
    uint64_t held = computing_bytes_;
    for (const auto& [id, client] : clients_)
        held += client->held_bytes();
    return held;
}

void Server::trim(const Client* receiving) {
    for (auto& [id, client] : clients_) {
        if (client.get() != receiving) client->trim();
    }
}

void Server::balance() {
    bool over = held_bytes() > settings_.max_peer_bytes;
    if (over) {
        trim(nullptr);
        over = held_bytes() > settings_.max_peer_bytes;
    }
    // One is read on, or nothing might ever become free: the one that began first.
    Client* first = nullptr;
    for (auto& [id, client] : clients_) {
        if (over && client->frame_begun() && (!first || *client->frame_begun() < *first->frame_begun()))
            first = client.get();
    }
    if (over) short_of_memory_until_ = network_.loop().now() + 2 * settings_.pressure_limit;
    for (auto& [id, client] : clients_)
        client->hold_up(over && client->frame_begun() && client.get() != first);
}

void Server::relieve() {
    const Instant now = network_.loop().now();
    std::vector<uint64_t> late;
    for (const auto& [id, client] : clients_) {
        if (client->keeps_memory_too_long(now)) late.push_back(id);
    }
    for (uint64_t id : late)
        end(id, {Code::timeout, "it is slow, and its memory is needed for others"});
}

// --- the queue -------------------------------------------------------------------------------------------------------

void Server::queued(const RequestCost& cost) {
    ++n_requests_;
    payload_bytes_ += cost.payload_bytes;
    pairs_waiting_ += cost.n_pairs;
}

void Server::left(const RequestCost& cost) {
    --n_requests_;
    payload_bytes_ -= cost.payload_bytes;
    pairs_waiting_ -= cost.n_pairs;
}

void Server::schedule() {
    while (n_computing_ < max_computing && start_next()) {
    }
}

/// Gives the next connection in turn its next request. False: there is none.
bool Server::start_next() {
    auto turn = std::find_if(clients_.upper_bound(last_served_), clients_.end(),
                             [](const auto& entry) { return entry.second->ready(); });
    if (turn == clients_.end()) {
        turn = std::find_if(clients_.begin(), clients_.end(), [](const auto& entry) { return entry.second->ready(); });
    }
    if (turn == clients_.end()) return false;
    const uint64_t id = last_served_ = turn->first;
    QueuedRequest request = turn->second->take();
    const Duration waited = network_.loop().now() - request.arrived;
    const std::chrono::milliseconds allowed(request.header.time_allowed_ms);
    if (allowed.count() != 0 && waited > allowed) {
        left(request.cost);
        turn->second->finish(request.header, request.cost,
                             {.status = {Code::timeout, fmt::format("it waited {:.0f} ms", milliseconds(waited))}},
                             waited);
        return true;
    }
    ++n_computing_;
    computing_bytes_ += request.cost.all_bytes();
    computer_.start(std::move(request.job), [this, alive = alive_, id, header = request.header, cost = request.cost,
                                             arrived = request.arrived](ComputeOutcome outcome) {
        if (*alive) finished(id, header, cost, arrived, std::move(outcome));
    });
    return true;
}

void Server::finished(uint64_t id, const wire::FrameHeader& header, const RequestCost& cost, Instant arrived,
                      ComputeOutcome outcome) {
    --n_computing_;
    computing_bytes_ -= cost.all_bytes();
    left(cost);
    // The next one first: sending this result need not hold it up.
    schedule();
    auto found = clients_.find(id);
    if (found != clients_.end()) {
        const Duration waited = network_.loop().now() - arrived - outcome.compute;
        found->second->finish(header, cost, std::move(outcome), waited);
    }
    schedule();
    balance();
    check_drained();
}

// --- leaving ---------------------------------------------------------------------------------------------------------

void Server::drain(std::function<void()> done) {
    if (draining_) return;
    draining_ = true;
    drained_ = std::move(done);
    listener_.reset();
    std::vector<uint64_t> strangers;
    for (auto& [id, client] : clients_) {
        if (client->established()) {
            client->say_goodbye("this worker is leaving");
        } else {
            strangers.push_back(id);
        }
    }
    for (uint64_t id : strangers)
        end(id, {Code::unavailable, "this worker is leaving"});
    later(clients_.empty() ? Duration(0) : settings_.goodbye_time, [this] {
        goodbyes_over_ = true;
        check_drained();
    });
}

void Server::check_drained() {
    if (!goodbyes_over_ || !drained_) return;
    later(Duration(0), [this] {
        for (auto entry = clients_.begin(); entry != clients_.end();) {
            if (entry->second->idle()) {
                entry->second->close();
                entry = clients_.erase(entry);
            } else {
                ++entry;
            }
        }
        if (!clients_.empty() || !drained_) return;
        auto done = std::move(drained_);
        drained_ = nullptr;
        done();
    });
}

}  // namespace linkcpp::worker
