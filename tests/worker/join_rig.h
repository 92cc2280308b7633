#pragma once
// Autonomous workers in virtual time: the real market, a hub that can be away, slices that take time to arrive.

#include "hub/market_rig.h"
#include "worker/join.h"

#include <set>

namespace linkcpp::worker {

using namespace std::chrono_literals;
using client::Segment;
using hub::market::ManualClock;

inline hub::market::Holding holding_of(const Segment& what) {
    return {what.model, {{what.layer_begin, what.layer_end}, {what.expert_begin, what.expert_end}}};
}
inline Segment segment_of(const std::string& model, const hub::market::Block& block) {
    return {model, block.layers.begin, block.layers.end, block.experts.begin, block.experts.end};
}

/// The hub that all workers of a test share.
struct FakeHub {
    explicit FakeHub(const ManualClock& c) : clock(c) { restart(); }
    /// What it had in memory is gone.
    void restart() {
        market = std::make_unique<hub::market::Market>(
            clock, hub::market::Settings{.lease_prefix = fmt::format("run{}", ++n_runs)});
        for (const auto& spec : specs)
            market->add_model(spec);
        tokens.clear();
    }
    void serve(const hub::market::ModelSpec& spec) {
        specs.push_back(spec);
        market->add_model(spec);
        fingerprints[spec.name] = "fingerprint of " + spec.name;
    }
    const ManualClock& clock;
    std::unique_ptr<hub::market::Market> market;
    std::vector<hub::market::ModelSpec> specs;
    std::map<std::string, std::string> fingerprints;
    std::set<std::string> tokens;  // nodes that have one
    bool away = false, wants_nobody = false;
    int n_runs = 0, n_calls = 0, n_registrations = 0;
};

class FakeHubPort final : public HubPort {
  public:
    FakeHubPort(FakeHub& hub, std::string node) : hub_(hub), node_(std::move(node)) {}

    Status register_node() override {
        LINKCPP_TRY(reached(false));
        if (hub_.wants_nobody) return {Code::unsupported, "this swarm is private"};
        hub_.n_registrations += 1;
        hub_.tokens.insert(node_);
        return {};
    }
    Result<std::map<std::string, std::string>> fingerprints() override {
        LINKCPP_TRY(reached(false));
        return hub_.fingerprints;
    }
    Result<std::vector<client::DemandSegment>> demand() override {
        LINKCPP_TRY(reached(false));
        std::vector<client::DemandSegment> all;
        for (const std::string& model : hub_.market->models()) {
            const auto segments = hub_.market->demand(model);
            for (const auto& s : *segments)
                all.push_back({segment_of(model, {{s.layer, s.layer + 1}, s.experts}), s.replicas, s.target, s.scarcity,
                               s.reward});
        }
        return all;
    }
    Result<client::Lease> volunteer(const client::VolunteerOffer& offer) override {
        LINKCPP_TRY(reached(true));
        hub::market::VolunteerRequest request;
        if (offer.max_bytes) request.budget.max_bytes = offer.max_bytes;
        if (offer.max_experts) request.budget.max_experts = offer.max_experts;
        if (offer.instead_of) request.instead_of = holding_of(*offer.instead_of);
        const auto lease = hub_.market->volunteer(node_, request);
        // As the routes do: what is not there, and what is no better, are both 409.
        if (!lease.ok()) {
            const Code code = lease.status().code();
            return {code == Code::unavailable ? Code::not_found : code, lease.status().message()};
        }
        return client::Lease{lease->id,
                             segment_of(lease->what.model, lease->what.block),
                             "",
                             lease->bytes,
                             lease->reward,
                             lease->replicas,
                             lease->scarcity,
                             60s};
    }
    Result<client::CoverageAnswer> tell_coverage(const client::Coverage& coverage) override {
        LINKCPP_TRY(reached(true));
        hub::market::Heartbeat heartbeat;
        for (const Segment& what : coverage.holds)
            heartbeat.holds.push_back(holding_of(what));
        for (const auto& [lease, bytes] : coverage.progress)
            heartbeat.progress.push_back({lease, bytes});
        heartbeat.address = coverage.address;
        heartbeat.draining = coverage.draining;
        const auto answer = hub_.market->heartbeat(node_, heartbeat);
        if (!answer.ok()) return answer.status();
        client::CoverageAnswer told{15s, answer->unknown, {}};
        for (const auto& held : answer->holds)
            told.holds.push_back({held.reward, held.replicas, held.target});
        return told;
    }
    Status leave() override {
        LINKCPP_TRY(reached(true));
        hub_.market->leave(node_);
        return {};
    }

    std::vector<Instant> attempts;  // when it was called while the hub was away

  private:
    Status reached(bool token) {
        hub_.n_calls += 1;
        if (hub_.away) {
            attempts.push_back(hub_.clock.now());
            return {Code::unavailable, "connection refused"};
        }
        if (token && !hub_.tokens.count(node_)) return {Code::mismatch, "the token has expired"};
        return {};
    }

    FakeHub& hub_;
    const std::string node_;
};

class FakeSlices final : public SlicePort {
  public:
    explicit FakeSlices(FakeHub& hub) : hub_(hub) {}

    void keep(const Segment& what, const std::string& fingerprint) {
        Kept slice;
        slice.what = what;
        slice.bytes = 1000 * count(what);
        slice.n_experts = count(what);
        slice.fingerprint = fingerprint;
        disk.push_back(slice);
    }
    std::vector<Kept> kept() override { return disk; }
    void fetch(const client::Lease& lease) override {
        fetching_ = lease;
        begun_ = hub_.clock.now();
        n_fetches += 1;
    }
    Fetching fetching() override {
        Fetching state;
        const double seconds = std::chrono::duration<double>(hub_.clock.now() - begun_).count();
        state.bytes = std::min(fetching_.bytes, static_cast<uint64_t>(seconds * bytes_per_second));
        if (state.bytes < fetching_.bytes) return state;
        if (n_broken > 0) {
            n_broken -= 1;
            state.ended.emplace(Status(Code::corrupt, "a slab is damaged"));
            return state;
        }
        const uint64_t memory = static_cast<uint64_t>(static_cast<double>(fetching_.bytes) * memory_per_byte);
        disk.push_back({fetching_.what, memory, count(fetching_.what), hub_.fingerprints[fetching_.what.model]});
        state.ended.emplace(disk.back());
        return state;
    }
    void stop_fetching() override { n_stopped += 1; }
    Status serve(const std::vector<Segment>& what) override {
        if (std::any_of(what.begin(), what.end(), [&](const Segment& one) { return damaged.count(one) != 0; }))
            return {Code::corrupt, "a slab is damaged"};
        served = what;
        uint64_t memory = 0;
        for (const Segment& one : what) {
            const auto slice =
                std::find_if(disk.begin(), disk.end(), [&](const Kept& kept) { return kept.what == one; });
            if (slice == disk.end()) {
                ADD_FAILURE() << "serves what is not on the disk: " << one.str();
                return {};
            }
            memory += slice->bytes;
        }
        most_memory = std::max(most_memory, memory);
        return {};
    }
    void forget(const Segment& what) override {
        EXPECT_EQ(std::count(served.begin(), served.end(), what), 0) << "forgets what it serves";
        std::erase_if(disk, [&](const Kept& kept) { return kept.what == what; });
        damaged.erase(what);
    }
    std::string address() override { return served.empty() ? "" : "10.0.0.1:50071"; }
    std::string numeric_class() override { return "CPU"; }
    double load() override { return 0; }

    std::vector<Kept> disk;
    std::vector<Segment> served;
    std::set<Segment> damaged;  // on the disk
    double bytes_per_second = 1e6, memory_per_byte = 1;
    uint64_t most_memory = 0;
    int n_fetches = 0, n_stopped = 0, n_broken = 0;

  private:
    uint64_t count(const Segment& what) const {
        uint64_t n = 0;
        for (const auto& spec : hub_.specs) {
            for (uint32_t layer = what.layer_begin; spec.name == what.model && layer < what.layer_end; ++layer)
                n += spec.layers[layer].n_expert == 0 ? 0 : what.expert_end - what.expert_begin;
        }
        return n;
    }
    FakeHub& hub_;
    client::Lease fetching_;
    Instant begun_{0};
};

/// A worker; step() it when due.
struct FakeWorker {
    FakeWorker(FakeHub& hub, const std::string& name, JoinSettings settings, uint32_t seed = 1)
        : port(hub, name), slices(hub), loop(hub.clock, port, slices, with_seed(settings, seed),
                                             [this](const JoinEvent& event) { events.push_back(event); }) {}
    static JoinSettings with_seed(JoinSettings settings, uint32_t seed) {
        settings.seed = seed;
        return settings;
    }
    int count(JoinEvent::Kind kind) const {
        return static_cast<int>(
            std::count_if(events.begin(), events.end(), [&](const JoinEvent& event) { return event.kind == kind; }));
    }
    void step(Instant now) {
        if (now < next || !failed.ok()) return;
        const auto wait = loop.step();
        failed = wait.status();
        if (wait.ok()) next = now + *wait;
    }
    FakeHubPort port;
    FakeSlices slices;
    std::vector<JoinEvent> events;
    JoinLoop loop;
    Instant next{0};
    Status failed;
};

}  // namespace linkcpp::worker
