#include "hub/model_routes.h"

#include "hub/json.h"

#include <set>

namespace linkcpp::hub {

namespace {

using nlohmann::json;

json summary_of(const ServedModel& model) {
    const moe::ModelInfo& info = model.file.info();
    std::map<std::string, std::set<std::string>> types;
    for (const moe::ExpertTensor& tensor : model.file.expert_tensors())
        types[moe::kind_name(tensor.name.kind)].insert(moe::tensor_type_name(tensor.type));
    return {{"name", model.name},
            {"title", info.name},
            {"architecture", info.architecture},
            {"fingerprint", info.fingerprint.hex()},
            {"n_layer", info.n_layer},
            {"n_embd", info.n_embd},
            {"n_expert", info.n_expert},
            {"n_expert_used", info.n_expert_used},
            {"n_ff_exp", info.n_ff_exp},
            {"n_files", info.n_files},
            {"bytes", info.n_bytes},
            {"bytes_experts", info.n_bytes_experts},
            {"expert_types", types}};
}

}  // namespace

void add_model_routes(Router& router, const Shelf& shelf) {
    router.add("GET", "/api/proxy/models", [&shelf](const Request&) {
        json models = json::array();
        for (const auto& model : shelf.models())
            models.push_back(summary_of(*model));
        return json_response({{"models", models}});
    });
}

}  // namespace linkcpp::hub
