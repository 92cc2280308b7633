#include "hub/market_spec.h"

namespace linkcpp::hub {

Result<std::vector<market::ModelSpec>> market_specs(const Shelf& shelf, const ReplicaTargets& targets) {
    for (const auto& [name, target] : targets.by_model) {
        if (!shelf.find(name)) return {Code::not_found, "there is no model '" + name + "' to want replicas of"};
    }
    std::vector<market::ModelSpec> specs;
    for (const auto& model : shelf.models()) {
        const auto own = targets.by_model.find(model->name);
        market::ModelSpec spec{model->name, {}, own == targets.by_model.end() ? targets.others : own->second};
        for (const moe::ModelLayer& layer : model->file.layers()) {
            market::LayerSpec entry{static_cast<uint32_t>(layer.n_expert), 0};
            for (const moe::ExpertTensor* tensor : layer.tensors)
                entry.expert_bytes += tensor->slab_bytes;
            spec.layers.push_back(entry);
        }
        specs.push_back(std::move(spec));
    }
    return specs;
}

}  // namespace linkcpp::hub
