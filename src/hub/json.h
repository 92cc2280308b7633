#pragma once
// JSON in and out of requests, with the limits that text from outside needs. Pure functions.

#include "base/status.h"
#include "hub/http.h"

#include <nlohmann/json.hpp>

namespace linkcpp::hub {

/// Strings that are not UTF-8 (names come from files and clients) are repaired, never an exception.
Response json_response(const nlohmann::json& value, int status = 200);

/// The body as a JSON object. Errors: invalid_argument (not JSON, not an object, nested deeper than 16).
Result<nlohmann::json> parse_json_object(std::string_view body);

}  // namespace linkcpp::hub
