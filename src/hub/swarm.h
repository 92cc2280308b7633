#pragma once
// The swarm of a hub: the market behind a lock, the store that keeps what must last, and who is who. Routes call it from any
// thread; it knows no JSON. Long polls wait here, on one thread of its own ("lc-hub-market") that also notices silence.

#include "hub/identity.h"
#include "hub/market/market.h"
#include "hub/store/store.h"

#include <condition_variable>
#include <thread>

namespace linkcpp::hub {

struct SwarmSettings {
    IdentitySettings identity;
    bool takes_nodes = true;      ///< false: nobody can register
    int64_t welcome_credits = 0;  ///< what the operator grants to every new node, so that it can pay
    size_t max_waiting = 10'000;  ///< long polls at once
};

/// A placement with its version.
struct Placement {
    uint64_t version = 0;
    std::vector<market::Holder> holders;
};

struct ReceiptResult {
    std::string id;
    Posted posted = Posted::done;
    Status refused;  ///< not ok: it can never be posted as it is, and why
};

class Swarm {
  public:
    /// `clock` and `store` outlive it. `models`: what is served, all of it.
    Swarm(const Clock& clock, Store& store, const PublicKey& hub, std::vector<market::ModelSpec> models,
          SwarmSettings settings);
    ~Swarm();  ///< end_waiting()
    Swarm(const Swarm&) = delete;
    Swarm& operator=(const Swarm&) = delete;

    const Identity& identity() const { return identity_; }
    bool takes_nodes() const { return settings_.takes_nodes; }

    /// A proof that was believed makes a node, and a token. Errors: mismatch; those of the store.
    Result<std::string> enter(const RegistrationProof& proof);

    std::vector<std::string> models();
    Result<std::vector<market::DemandSegment>> demand(const std::string& model);
    Result<market::Lease> volunteer(const std::string& node, const market::VolunteerRequest& request);
    Result<market::HeartbeatAnswer> heartbeat(const std::string& node, const market::Heartbeat& heartbeat);
    bool leave(const std::string& node);
    Result<Placement> placement(const std::string& model);
    /// Calls `done` with the placement as soon as its version is not `version`, or `limit` is over; at once when there is no
    /// such model, or too many wait. On any thread.
    void wait_for_placement(const std::string& model, uint64_t version, Duration limit,
                            std::function<void(Result<Placement>)> done);

    /// Answers all long polls, and from now on each at once: before a server stops.
    void end_waiting();

    /// Checks signatures and what rows are worth, pays, records. Errors: those of the store, then nothing has changed.
    Result<std::vector<ReceiptResult>> post(const std::vector<SignedReceipt>& receipts);
    /// Moves credits from the operator to the node, once for each amount.
    Status grant(const std::string& node, int64_t credits);
    Store& store() { return store_; }

    struct Figures {
        size_t nodes = 0, leases = 0, waiting = 0;
        uint64_t heartbeats = 0, leases_given = 0, receipts = 0, rows = 0;
    };
    Figures figures();

  private:
    struct Waiting {
        std::string model;
        uint64_t version = 0;
        Instant until{0};
        std::function<void(Result<Placement>)> done;
    };

    market::Settings market_settings();
    void keep_promises(const std::string& node, const market::Heartbeat& heartbeat,
                       const market::HeartbeatAnswer& answer);
    Result<int64_t> worth(const Receipt& receipt);
    Status check(const SignedReceipt& receipt);
    Result<Placement> placement_locked(const std::string& model);
    void wake_waiting();
    void run();
    std::vector<std::function<void()>> take_ready();

    const SwarmSettings settings_;
    const Clock& clock_;
    Store& store_;
    Identity identity_;
    std::mutex mutex_;
    std::condition_variable wake_;
    market::Market market_;  // protected by mutex_, as is everything below
    std::vector<Waiting> waiting_;
    Figures figures_;
    uint64_t changes_told_ = 0;  // market_.n_changes() when the waiting were looked at
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace linkcpp::hub
