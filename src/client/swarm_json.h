#pragma once
// Placements and receipts as JSON: what travels to and from a hub (docs/openapi.yaml) and, in the same form, what a backbone
// keeps on its disk. Only for .cpp files of this room. The readers throw json::exception where something is missing or of
// another type.

#include "client/hub_api.h"

#include <nlohmann/json.hpp>

namespace linkcpp::client {

nlohmann::json to_json(const Segment& what);
Segment segment_from(const nlohmann::json& value, const std::string& model);

nlohmann::json to_json(const Placement& placement);
Placement placement_from(const nlohmann::json& value);

nlohmann::json to_json(const SignedReceipt& receipt);
SignedReceipt receipt_from(const nlohmann::json& value);

}  // namespace linkcpp::client
