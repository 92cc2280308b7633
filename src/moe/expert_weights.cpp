#include "moe/expert_weights.h"

#include "moe/slab_loader.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/mman.h>

namespace linkcpp::moe {

namespace {

/// llama.cpp repacks only tensors with three dimensions, and ggml drops a last dimension of one: a slice of one expert
/// would be computed on other weights than a stock run. So every tensor holds at least two experts here.
int64_t padded(int64_t n_expert) { return std::max<int64_t>(n_expert, 2); }

int64_t expert_count(const ExpertTensor& tensor) {
    return tensor.slab_bytes == 0 ? 0 : static_cast<int64_t>(tensor.data.size() / tensor.slab_bytes);
}

ggml_tensor* new_tensor(ggml_context* context, const ExpertTensor& source) {
    const auto type = static_cast<ggml_type>(source.type);
    const int64_t n_expert = padded(expert_count(source));
    ggml_tensor* tensor = source.name.kind.role == Role::weight
                              ? ggml_new_tensor_3d(context, type, source.ne[0], source.ne[1], n_expert)
                              : ggml_new_tensor_2d(context, type, source.ne[0], n_expert);
    ggml_set_name(tensor, source.name.str().c_str());
    return tensor;
}

/// Would `device` run this tensor's operation on weights in a buffer of type `type`? Asked as llama.cpp's loader does:
/// with a dummy operation on a dummy buffer, since the answer depends on the buffer type.
bool supported(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, const ExpertTensor& source) {
    ggml_context_ptr context(ggml_init({8 * ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor* w = new_tensor(context.get(), source);
    ggml_tensor* ids = ggml_new_tensor_2d(context.get(), GGML_TYPE_I32, 2, 512);
    ggml_tensor* op = nullptr;
    if (source.name.kind.role == Role::weight) {
        ggml_tensor* x = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, w->ne[0], 2, 512);
        op = ggml_mul_mat_id(context.get(), w, x, ids);
    } else {
        ggml_tensor* x = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, w->ne[0], 2, 512);
        op = ggml_add_id(context.get(), x, w, ids);
    }
    ggml_backend_buffer_ptr dummy(ggml_backend_buft_alloc_buffer(type, 0));
    if (!dummy) return false;
    w->buffer = dummy.get();
    const bool answer = ggml_backend_dev_supports_op(device, op);
    w->buffer = nullptr;
    return answer;
}

Status check(const ExpertTensor& source, int64_t n_expert) {
    const std::string name = source.name.str();
    if (expert_count(source) != n_expert || source.data.size() != source.slab_bytes * static_cast<uint64_t>(n_expert)) {
        return {Code::corrupt, fmt::format("{}: {} bytes of data do not hold {} experts of {} bytes", name,
                                           source.data.size(), n_expert, source.slab_bytes)};
    }
    if (source.type < 0 || source.type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(source.type)) == 0) {
        return {Code::unsupported, fmt::format("{}: tensor type {} is unknown to this ggml", name, source.type)};
    }
    const auto type = static_cast<ggml_type>(source.type);
    if (source.ne[0] <= 0 || source.ne[1] <= 0 || source.ne[0] % ggml_blck_size(type) != 0 ||
        ggml_row_size(type, source.ne[0]) * static_cast<uint64_t>(source.ne[1]) != source.slab_bytes) {
        return {Code::corrupt, fmt::format("{}: a slab of {} bytes is not [{}, {}] of type {}", name, source.slab_bytes,
                                           source.ne[0], source.ne[1], ggml_type_name(type))};
    }
    // ggml says that it can multiply with any type, and jumps to address zero for those that are no weights: integers, and
    // the types into which it quantises activations.
    if (type != GGML_TYPE_F32 && ggml_get_type_traits(type)->to_float == nullptr) {
        return {Code::unsupported, fmt::format("{}: weights of type {}", name, ggml_type_name(type))};
    }
    if (source.name.kind.role == Role::bias && type != GGML_TYPE_F32) {
        return {Code::unsupported, fmt::format("{}: a bias of type {}", name, ggml_type_name(type))};
    }
    return {};
}

/// Scales are applied by the backbone (they stay in its own memory), so an engine does not load them.
bool is_loaded(const ExpertTensor& source) {
    return source.name.kind.role == Role::weight || source.name.kind.role == Role::bias;
}

}  // namespace

Result<ExpertWeights::Plan> ExpertWeights::plan(GgmlDevice& device, const std::vector<ExpertTensor>& tensors) {
    n_expert_ = 0;
    for (const ExpertTensor& source : tensors) {
        if (is_loaded(source)) n_expert_ = std::max(n_expert_, static_cast<int>(expert_count(source)));
    }
    Plan plan;
    for (const ExpertTensor& source : tensors) {
        if (!is_loaded(source)) continue;
        LINKCPP_TRY(check(source, n_expert_));
        ggml_backend_buffer_type_t chosen = nullptr;
        for (ggml_backend_buffer_type_t type : device.weight_buffer_types()) {
            if (chosen == nullptr && supported(device.device(), type, source)) chosen = type;
        }
        if (chosen == nullptr) {
            return {Code::unsupported,
                    fmt::format("device {} cannot compute {} of type {}", ggml_backend_dev_name(device.device()),
                                source.name.str(), ggml_type_name(static_cast<ggml_type>(source.type)))};
        }
        Placement& placement = plan[chosen];
        if (!placement.context)
            placement.context.reset(ggml_init({(tensors.size() + 1) * ggml_tensor_overhead(), nullptr, true}));
        placement.tensors.emplace_back(new_tensor(placement.context.get(), source), &source);
    }
    if (plan.empty()) return {Code::invalid_argument, "there is no expert tensor to load"};
    return plan;
}

Result<uint64_t> ExpertWeights::bytes_needed(GgmlDevice& device, const std::vector<ExpertTensor>& tensors) {
    ExpertWeights weights;
    auto plan = weights.plan(device, tensors);
    if (!plan.ok()) return plan.status();
    uint64_t bytes = 0;
    for (const auto& [type, placement] : *plan) {
        const uint64_t alignment = ggml_backend_buft_get_alignment(type);
        for (const auto& [tensor, source] : placement.tensors) {
            bytes += ggml_backend_buft_get_alloc_size(type, tensor) + alignment;
        }
    }
    return bytes;
}

/// Weights are read from end to end for every token: with large pages they are mapped in less time, and stay so.
void prefer_large_pages(const GgmlDevice& device, ggml_backend_buffer_t buffer) {
    if (ggml_backend_dev_type(device.device()) != GGML_BACKEND_DEVICE_TYPE_CPU) return;
    constexpr uintptr_t page = 2 << 20;
    const auto base = reinterpret_cast<uintptr_t>(ggml_backend_buffer_get_base(buffer));
    const uintptr_t begin = (base + page - 1) / page * page,
                    end = (base + ggml_backend_buffer_get_size(buffer)) / page * page;
    if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

Result<ExpertWeights> ExpertWeights::load(GgmlDevice& device, const std::vector<ExpertTensor>& tensors,
                                          const Progress& progress, const ReadSlab& read) {
    ExpertWeights weights;
    auto plan = weights.plan(device, tensors);
    if (!plan.ok()) return plan.status();
    SlabLoader loader(device, read, progress);
    for (auto& [type, placement] : *plan) {
        ggml_backend_buffer_ptr buffer(ggml_backend_alloc_ctx_tensors_from_buft(placement.context.get(), type));
        if (!buffer) {
            uint64_t bytes = 0;
            for (const auto& [tensor, source] : placement.tensors)
                bytes += source->data.size();
            return {Code::exhausted, fmt::format("{} bytes of {} memory for expert weights cannot be allocated", bytes,
                                                 ggml_backend_buft_name(type))};
        }
        prefer_large_pages(device, buffer.get());
        ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        weights.bytes_ += ggml_backend_buffer_get_size(buffer.get());
        for (const auto& [tensor, source] : placement.tensors) {
            loader.add(tensor, *source);
            LayerWeights& layer = weights.layers_[source->name.layer];
            auto& slots = source->name.kind.role == Role::weight ? layer.weight : layer.bias;
            slots[static_cast<size_t>(source->name.kind.matrix)] = tensor;
        }
        weights.contexts_.push_back(std::move(placement.context));
        weights.buffers_.push_back(std::move(buffer));
    }
    for (const ExpertTensor& source : tensors) {
        if (!is_loaded(source) && read) loader.add(nullptr, source);
    }
    LINKCPP_TRY(weights.check_biases());
    LINKCPP_TRY(loader.run());
    return weights;
}

/// A bias is added to what its matrix gives.
Status ExpertWeights::check_biases() const {
    for (const auto& [number, layer] : layers_) {
        for (size_t m = 0; m < layer.bias.size(); ++m) {
            const ggml_tensor *weight = layer.weight[m], *bias = layer.bias[m];
            if (weight == nullptr || bias == nullptr || weight->ne[1] == bias->ne[0]) continue;
            return {Code::corrupt, fmt::format("{} has a width of {}, its matrix gives {}", ggml_get_name(bias),
                                               bias->ne[0], weight->ne[1])};
        }
    }
    return {};
}

LayerShapes ExpertWeights::shapes(int layer) const {
    LayerShapes shapes;
    const auto found = layers_.find(layer);
    if (found == layers_.end()) return shapes;
    for (size_t m = 0; m < 4; ++m) {
        const ggml_tensor* w = found->second.weight[m];
        if (w != nullptr) shapes.matrix[m] = {true, found->second.bias[m] != nullptr, w->ne[0], w->ne[1]};
    }
    return shapes;
}

}  // namespace linkcpp::moe
