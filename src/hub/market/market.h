#pragma once
// The market: who holds which experts, what is wanted, who is on his way. Nodes tell what they hold every few seconds; one
// that falls silent is off the map. A volunteer gets a lease on the rarest experts, which counts as a coming replica until it
// is fulfilled or lapses. Rules and their reasons: docs/MARKET.md.
//
// Pure: no I/O, the clock is given, the same calls give the same answers. One thread at a time; whoever is silent is noticed
// at the next call. Nodes are names that somebody else has authenticated.

#include "base/clock.h"
#include "hub/market/model_map.h"

#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

namespace linkcpp::hub::market {

struct Settings {
    Duration stale_after = std::chrono::seconds(15);  ///< without a heartbeat
    Duration lease_time = std::chrono::seconds(60);   ///< without progress
    uint64_t slowest_download = 128 << 10;  ///< bytes per second below which a lease ends whatever its progress
    size_t max_leases = 4;                  ///< open ones of a node
    size_t max_holdings = 96;               ///< of a node: what a worker can offer
    size_t max_nodes = 100'000;
    Duration demand_half_life = std::chrono::minutes(10);  ///< of what counts as recent demand of a model
    std::string lease_prefix = "lease";                    ///< differs between runs, so that old ids mean nothing
    uint64_t first_version = 1;                            ///< of every placement; differs between runs, too
    /// The reward that a node was promised once for what it holds (before a restart of the hub); may be empty.
    std::function<std::optional<uint64_t>(const std::string& node, const Holding&)> promised;
};

struct DemandSegment {
    uint32_t layer = 0;
    Range experts;
    uint32_t replicas = 0, target = 0;
    double scarcity = 0;
    uint64_t reward = 0;  ///< credits per 1000 rows, for who volunteers now
};

struct Lease {
    std::string id, node;
    Holding what;
    double scarcity = 0;
    uint32_t replicas = 0, target = 0;  ///< when it was given
    uint64_t reward = 0;                ///< fixed
    uint64_t bytes = 0;
    Instant expires{0}, ends{0};  ///< without further progress; whatever the progress
    uint64_t downloaded = 0;
    std::optional<Holding> instead_of;  ///< what the node gives up for it
};

struct VolunteerRequest {
    Budget budget;
    std::optional<std::string> model;   ///< any when empty
    std::optional<Holding> instead_of;  ///< the node would give this up
};

struct LeaseProgress {
    std::string lease;
    uint64_t bytes = 0;  ///< that have arrived
};

struct Heartbeat {
    std::vector<Holding> holds;
    std::string address;  ///< where backbones reach it; empty while it serves nothing
    std::string numeric_class;
    double load = 0;        ///< rows waiting, for people
    bool draining = false;  ///< still there, but leaving: does not count as a replica
    std::vector<LeaseProgress> progress;
};

struct HeartbeatAnswer {
    std::vector<Lease> leases;         ///< that are open
    std::vector<std::string> unknown;  ///< lapsed, or never given
    /// By position in Heartbeat::holds: what its rows earn, and how many replicas there are at the least.
    struct Held {
        uint64_t reward = 0;
        uint32_t replicas = 0, target = 0;
        bool fresh = false;  ///< since this heartbeat
    };
    std::vector<Held> holds;
};

struct Holder {
    std::string node, address, numeric_class;
    double load = 0;
    bool draining = false;
    std::vector<Block> blocks;
};

class Market {
  public:
    Market(const Clock& clock, Settings settings);

    void add_model(ModelSpec spec);
    const ModelSpec* model(const std::string& name) const;
    std::vector<std::string> models() const;

    /// Every expert of the model, in order. Errors: not_found.
    Result<std::vector<DemandSegment>> demand(const std::string& model);
    /// Errors: not_found (no such model; nothing that fits the budget), exhausted (too many open leases), unavailable
    /// (moving would not make the map better), invalid_argument (instead_of is not held).
    Result<Lease> volunteer(const std::string& node, const VolunteerRequest& request);
    /// Replaces what is known of the node. What a lease was given for and is held now fulfils it. Errors: not_found (no such
    /// model), invalid_argument (ranges that make no sense or overlap), exhausted (too many).
    Result<HeartbeatAnswer> heartbeat(const std::string& node, const Heartbeat& heartbeat);
    /// Off the map at once, leases included. False: it was not there.
    bool leave(const std::string& node);

    /// Who serves the model. Errors: not_found.
    Result<std::vector<Holder>> placement(const std::string& model);
    /// Changes whenever placement() does, load aside. 0: no such model.
    uint64_t placement_version(const std::string& model);

    /// Grows with every change of any placement.
    uint64_t n_changes() const { return n_changes_; }

    /// What rows of this node's experts earn now, per 1000; nullopt: it does not hold all of them.
    std::optional<uint64_t> reward(const std::string& node, const Holding& part);
    /// Rows that backbones had computed, by their receipts.
    void note_rows(const std::string& model, uint64_t rows);

    /// Drops who was silent for too long and leases that lapsed. Called by everything above.
    void sweep();
    size_t n_nodes() const { return nodes_.size(); }
    size_t n_leases() const { return leases_.size(); }

  private:
    struct Model {
        Model(ModelSpec spec, uint64_t first_version) : map(std::move(spec)), version(first_version) {}
        ModelMap map;
        uint64_t version;
        double rows = 0;  // decayed to rows_at
        Instant rows_at{0};
        std::set<std::string> holders;  // nodes that hold something of it
    };
    struct Held {
        Holding what;
        uint64_t reward = 0;
        bool leaving = false;  // a lease was given in its stead
        bool fresh = true;     // not told of yet
    };
    struct Node {
        std::vector<Held> holds;
        std::string address, numeric_class;
        double load = 0;
        bool draining = false;
        std::set<std::string> leases;
        Instant seen{0};
        bool heard = false;                     // is it in by_age_? If not, it only has leases
        std::list<std::string>::iterator turn;  // in by_age_
    };

    /// Somewhere to hold something.
    struct Place {
        const Model* model = nullptr;
        ModelMap::Offer offer;
    };

    Node& touch(const std::string& id);
    void drop_holdings(const std::string& id, Node& node);
    void forget_if_empty(const std::string& id);
    Result<const Held*> given_up(const Node* node, const VolunteerRequest& request) const;
    std::optional<Place> rarest(const Node* node, const VolunteerRequest& request) const;
    Lease give_lease(const std::string& id, const Place& place, const VolunteerRequest& request);
    Status check(const Heartbeat& heartbeat) const;
    void replace_holdings(const std::string& id, Node& node, const Heartbeat& heartbeat);
    std::vector<Held> held_now(const std::string& id, const Node& node, const Heartbeat& heartbeat) const;
    void count(const Node& node, bool add);
    void publish(const std::string& id, const std::vector<Held>& before, const std::vector<Held>& after);
    void renew(const Node& node, const Heartbeat& heartbeat, HeartbeatAnswer& answer);
    void fulfil(const Node& node);
    void end_lease(const std::string& id);
    void schedule(Lease& lease, Instant expires);
    uint64_t first_reward(const std::string& id, const Node& node, const Holding& what) const;
    uint64_t reward_of(const Model& model, uint32_t replicas, uint64_t expert_bytes) const;
    double rows_per_minute(const Model& model) const;
    std::vector<Block> taken(const Node* node, const std::string& model) const;

    const Clock& clock_;
    const Settings settings_;
    std::map<std::string, Model> models_;
    std::unordered_map<std::string, Node> nodes_;
    std::list<std::string> by_age_;  // nodes, the longest silent first
    std::map<std::string, Lease> leases_;
    std::set<std::pair<Instant, std::string>> lapses_;
    uint64_t last_lease_ = 0, n_changes_ = 0;
};

}  // namespace linkcpp::hub::market
