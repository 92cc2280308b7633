#include "client/swarm_json.h"

#include "base/hex.h"

namespace linkcpp::client {

using nlohmann::json;

json to_json(const Segment& what) {
    return {{"model", what.model},
            {"layers", {what.layer_begin, what.layer_end}},
            {"experts", {what.expert_begin, what.expert_end}}};
}

Segment segment_from(const json& value, const std::string& model) {
    Segment what{model, 0, 0, 0, 0};
    if (value.contains("layers")) {
        what.layer_begin = value.at("layers").at(0);
        what.layer_end = value.at("layers").at(1);
    } else {
        what.layer_begin = value.at("layer");
        what.layer_end = what.layer_begin + 1;
    }
    what.expert_begin = value.at("experts").at(0);
    what.expert_end = value.at("experts").at(1);
    return what;
}

json to_json(const Placement& placement) {
    json holders = json::array();
    for (const PlacementHolder& holder : placement.holders) {
        json holds = json::array();
        for (const Segment& what : holder.holds) {
            holds.push_back(
                {{"layers", {what.layer_begin, what.layer_end}}, {"experts", {what.expert_begin, what.expert_end}}});
        }
        holders.push_back({{"node", holder.node},
                           {"address", holder.address},
                           {"numeric_class", holder.numeric_class},
                           {"holds", holds}});
    }
    return {{"model", placement.model}, {"version", placement.version}, {"holders", holders}};
}

Placement placement_from(const json& value) {
    Placement placement{value.at("model"), value.at("version"), {}};
    for (const json& item : value.at("holders")) {
        PlacementHolder holder{item.at("node"), item.at("address"), item.at("numeric_class"), {}};
        for (const json& what : item.at("holds"))
            holder.holds.push_back(segment_from(what, placement.model));
        placement.holders.push_back(std::move(holder));
    }
    return placement;
}

json to_json(const SignedReceipt& signed_receipt) {
    const Receipt& receipt = signed_receipt.receipt;
    return {{"backbone", receipt.backbone},
            {"payer", receipt.payer},
            {"node", receipt.node},
            {"model", receipt.model},
            {"layers", {receipt.layer_begin, receipt.layer_end}},
            {"experts", {receipt.expert_begin, receipt.expert_end}},
            {"rows", receipt.rows},
            {"period", {receipt.period_begin, receipt.period_end}},
            {"sequence", receipt.sequence},
            {"signature", to_hex(signed_receipt.signature)}};
}

SignedReceipt receipt_from(const json& value) {
    SignedReceipt signed_receipt;
    Receipt& receipt = signed_receipt.receipt;
    receipt.backbone = value.at("backbone");
    receipt.payer = value.at("payer");
    receipt.node = value.at("node");
    receipt.model = value.at("model");
    receipt.layer_begin = value.at("layers").at(0);
    receipt.layer_end = value.at("layers").at(1);
    receipt.expert_begin = value.at("experts").at(0);
    receipt.expert_end = value.at("experts").at(1);
    receipt.rows = value.at("rows");
    receipt.period_begin = value.at("period").at(0);
    receipt.period_end = value.at("period").at(1);
    receipt.sequence = value.at("sequence");
    // What is no signature is refused by the hub like any wrong one.
    if (const auto signature = from_hex_array<64>(value.at("signature").get<std::string>()))
        signed_receipt.signature = *signature;
    return signed_receipt;
}

}  // namespace linkcpp::client
