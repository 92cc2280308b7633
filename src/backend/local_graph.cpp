// Nodes that no region covers are computed here, by ggml's CPU backend, in place. Where they use expert weights (which
// our buffers do not hold), a copy of the node is computed with the same weights in the buffer type of a stock run.

#include "backend/buffer.h"
#include "backend/model.h"
#include "base/log.h"

#include <fmt/format.h>

namespace linkcpp::backend {

Result<const moe::LayerWeights*> Model::whole_layer(int layer) {
    auto device = local_device();
    if (!device.ok()) return device.status();
    const std::lock_guard lock(device_mutex_);
    auto found = whole_layers_.find(layer);
    if (found == whole_layers_.end()) {
        if (!source_.has_weights())
            return {Code::unavailable, "its experts' weights are not here: " + source_.no_weights_reason()};
        std::vector<moe::ExpertTensor> tensors;
        for (const moe::ExpertTensor* tensor : source_.tensors(layer))
            tensors.push_back(*tensor);
        auto weights = moe::ExpertWeights::load(**device, tensors, {});
        if (!weights.ok()) return weights.status();
        found = whole_layers_.emplace(layer, std::move(*weights)).first;
    }
    return &found->second.layers().at(layer);
}

Status Model::compute_locally(const ggml_cgraph* graph, int begin, int end) {
    std::call_once(prepared_, [this] { prepare(); });
    LINKCPP_TRY(unusable_);
    auto device = local_device();
    if (!device.ok()) return device.status();
    const auto n_nodes = static_cast<size_t>(end - begin);
    ggml_context_ptr context(
        ggml_init({n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false), nullptr, true}));
    if (!context) return {Code::exhausted, "no memory for a local graph"};
    ggml_cgraph* local = ggml_new_graph_custom(context.get(), n_nodes, false);
    for (int i = begin; i < end; ++i) {
        ggml_tensor* node = graph->nodes[i];
        const int weight_at = node->op == GGML_OP_MUL_MAT_ID ? 0 : node->op == GGML_OP_ADD_ID ? 1 : -1;
        if (weight_at >= 0 && is_ours(node->src[weight_at]) && !is_kept(node->src[weight_at])) {
            const auto name = moe::ExpertTensorName::parse(node->src[weight_at]->name);
            if (!name) return {Code::unsupported, std::string("operation on ") + node->src[weight_at]->name};
            auto layer = whole_layer(name->layer);
            if (!layer.ok()) return layer.status().in(fmt::format("layer {}", name->layer));
            ggml_tensor* copy = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 1);
            *copy = *node;
            const auto& slots = name->kind.role == moe::Role::weight ? (*layer)->weight : (*layer)->bias;
            copy->src[weight_at] = slots[static_cast<size_t>(name->kind.matrix)];
            if (copy->src[weight_at] == nullptr) return {Code::unsupported, name->str() + " cannot be computed here"};
            node = copy;
        }
        ggml_graph_add_node(local, node);
    }
    const std::lock_guard turn((*device)->turn());
    return (*device)->compute(local);
}

}  // namespace linkcpp::backend
