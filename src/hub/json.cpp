#include "hub/json.h"

namespace linkcpp::hub {

namespace {

constexpr int max_depth = 16;

}  // namespace

Response json_response(const nlohmann::json& value, int status) {
    Response response =
        text_response(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", "application/json");
    response.status = status;
    return response;
}

Result<nlohmann::json> parse_json_object(std::string_view body) {
    bool too_deep = false;
    const auto watch = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > max_depth;
        return !too_deep;
    };
    // Without exceptions; what is wrong is nothing that a byte offset would explain better.
    nlohmann::json value = nlohmann::json::parse(body, watch, false);
    if (too_deep) return {Code::invalid_argument, "the body is nested too deeply"};
    if (value.is_discarded()) return {Code::invalid_argument, "the body is not JSON"};
    if (!value.is_object()) return {Code::invalid_argument, "the body is not a JSON object"};
    return value;
}

}  // namespace linkcpp::hub
