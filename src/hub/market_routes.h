#pragma once
// The routes of the swarm: registration, demand, leases, coverage, placement, receipts, ledger. docs/openapi.yaml is their
// specification, docs/MARKET.md says what they are for. Handlers are called from any thread.

#include "hub/router.h"
#include "hub/status_routes.h"
#include "hub/swarm.h"

namespace linkcpp::hub {

/// `swarm` and `clock` outlive the router.
void add_market_routes(Router& router, Swarm& swarm, const Clock& clock);
void add_node_routes(Router& router, Swarm& swarm);
/// `swarm` outlives `metrics`.
void add_swarm_metrics(Metrics& metrics, Swarm& swarm);

/// The node whose token the request shows ("Authorization: Bearer …"), or the answer that it gets instead.
struct Caller {
    std::string node;
    std::optional<Response> refused;
};
Caller caller_of(const Request& request, const Swarm& swarm);
/// The answer to a Status that is not ok.
Response answer_to(const Status& status);

}  // namespace linkcpp::hub
