#pragma once
// The market's values as JSON and back; docs/openapi.yaml is their specification. Pure functions.

#include "base/statements.h"
#include "hub/json_fields.h"
#include "hub/swarm.h"

namespace linkcpp::hub {

nlohmann::json to_json(const market::DemandSegment& segment);
nlohmann::json to_json(const market::Lease& lease, Instant now);
nlohmann::json to_json(const market::HeartbeatAnswer& answer, Instant now, Duration stale_after);
nlohmann::json to_json(const std::string& model, const Placement& placement);
nlohmann::json to_json(const LedgerEntry& entry);
nlohmann::json to_json(const ReceiptResult& result);

/// Errors of these: invalid_argument, naming the field. `peer_host` stands for a host that an address leaves out.
Result<market::VolunteerRequest> volunteer_request(const nlohmann::json& body);
Result<market::Heartbeat> heartbeat(const nlohmann::json& body, const std::string& peer_host);
Result<std::vector<SignedReceipt>> signed_receipts(const nlohmann::json& body);

}  // namespace linkcpp::hub
