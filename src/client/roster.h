#pragma once
// Which workers a backbone talks to, of those that a hub knows: enough for every expert, and not thousands; those it talks to
// already before others; and when the hub was away (a restarted one has yet to hear from its nodes), those it forgot as well, for
// a while. Pure: the time is given.

#include "base/clock.h"
#include "client/hub_api.h"

namespace linkcpp::client {

struct RosterSettings {
    std::string self;           ///< who chooses: backbones choose differently, so that the load spreads
    std::string numeric_class;  ///< workers of this one come first
    uint32_t replicas = 8;      ///< workers per expert
    Duration grace = std::chrono::minutes(2);
};

class Roster {
  public:
    explicit Roster(RosterSettings settings) : settings_(std::move(settings)) {}

    /// What the hub says from now on may lack nodes that it has not heard from yet.
    void hub_was_away(Instant now) { grace_until_ = now + settings_.grace; }
    void update(const Placement& placement, Instant now);
    /// Address -> node id; "" when several nodes say that they are reached there.
    const std::map<std::string, std::string>& members() const { return members_; }
    /// How long the members may be more than the placement says; zero: they are not.
    Duration grace_left(Instant now) const { return std::max(Duration::zero(), grace_until_ - now); }

  private:
    const RosterSettings settings_;
    std::map<std::string, std::string> members_;
    Instant grace_until_{INT64_MIN / 2};
};

}  // namespace linkcpp::client
