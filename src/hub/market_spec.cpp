#include "hub/market_spec.h"

namespace linkcpp::hub {

std::vector<market::ModelSpec> market_specs(const Shelf& shelf, uint32_t target) {
    std::vector<market::ModelSpec> specs;
    for (const auto& model : shelf.models()) {
        market::ModelSpec spec{model->name, {}, target};
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
