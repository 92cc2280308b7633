#include "moe/expert_graph.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

ggml_tensor* half(ggml_context* context, ggml_tensor* a, bool second) {
    const int64_t n = a->ne[0] / 2;
    const size_t offset = second ? static_cast<size_t>(n) * a->nb[0] : 0;
    return ggml_view_3d(context, a, n, a->ne[1], a->ne[2], a->nb[1], a->nb[2], offset);
}

/// The same ggml operation as llama.cpp's graph has at this place: that is what makes the results bit-identical.
ggml_tensor* build_step(ggml_context* context, const Step& step, const LayerWeights& weights, ggml_tensor* a,
                        ggml_tensor* b, ggml_tensor* expert) {
    const auto matrix = static_cast<size_t>(step.matrix);
    switch (step.op) {
        case Op::matmul: return ggml_mul_mat_id(context, weights.weight[matrix], a, expert);
        case Op::add_bias: return ggml_add_id(context, a, weights.bias[matrix], expert);
        case Op::first_half: return half(context, a, false);
        case Op::second_half: return half(context, a, true);
        case Op::silu: return ggml_silu(context, a);
        case Op::gelu: return ggml_gelu(context, a);
        case Op::relu: return ggml_relu(context, a);
        case Op::sigmoid: return ggml_sigmoid(context, a);
        case Op::tanh: return ggml_tanh(context, a);
        case Op::gelu_quick: return ggml_gelu_quick(context, a);
        case Op::gelu_erf: return ggml_gelu_erf(context, a);
        case Op::sqr: return ggml_sqr(context, a);
        case Op::clamp: return ggml_clamp(context, a, step.p[0], step.p[1]);
        // ggml ends the process when it is to scale rows with gaps between them, which halves have.
        case Op::scale:
            return ggml_scale_bias(context, ggml_is_contiguous(a) ? a : ggml_cont(context, a), step.p[0], step.p[1]);
        case Op::mul: return ggml_mul(context, a, b);
        case Op::add: return ggml_add(context, a, b);
        case Op::swiglu: return ggml_swiglu_split(context, a, b);
        case Op::geglu: return ggml_geglu_split(context, a, b);
        case Op::reglu: return ggml_reglu_split(context, a, b);
        case Op::geglu_erf: return ggml_geglu_erf_split(context, a, b);
        case Op::geglu_quick: return ggml_geglu_quick_split(context, a, b);
        case Op::swiglu_oai: return ggml_swiglu_oai(context, a, b, step.p[0], step.p[1]);
        case Op::swiglu_clamp: return ggml_swiglu_clamp(context, a, b, step.p[0]);
    }
    return nullptr;
}

}  // namespace

Result<ExpertGraph> ExpertGraph::build(GgmlDevice& device, const LayerWeights& weights, const Program& program,
                                       ProgramShape widths, RowShape rows, ggml_gallocr_t shared) {
    ExpertGraph built;
    built.device_ = &device;
    const size_t n_tensors = 2 * program.steps.size() + 8;
    const size_t n_bytes = n_tensors * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_tensors, false);
    built.context_.reset(ggml_init({n_bytes, nullptr, true}));
    ggml_context* context = built.context_.get();
    if (context == nullptr) return {Code::exhausted, "no memory for an expert graph"};

    built.x_ = ggml_new_tensor_3d(context, GGML_TYPE_F32, widths.n_in, 1, rows.n_tokens);
    built.expert_ = ggml_new_tensor_2d(context, GGML_TYPE_I32, rows.n_used, rows.n_tokens);
    ggml_set_input(built.x_);
    ggml_set_input(built.expert_);

    std::vector<ggml_tensor*> values = {built.x_};
    for (const Step& step : program.steps) {
        ggml_tensor* value = build_step(context, step, weights, values[step.a], values[step.b], built.expert_);
        if (value == nullptr || !ggml_backend_dev_supports_op(device.device(), value)) {
            return {Code::unsupported, fmt::format("device {} cannot compute {}",
                                                   ggml_backend_dev_name(device.device()), describe(program))};
        }
        values.push_back(value);
    }
    built.y_ = ggml_is_contiguous(values.back()) ? values.back() : ggml_cont(context, values.back());
    ggml_set_output(built.y_);
    built.graph_ = ggml_new_graph_custom(context, n_tensors, false);
    ggml_build_forward_expand(built.graph_, built.y_);

    if (shared == nullptr)
        built.allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(device.backend())));
    if (!ggml_gallocr_alloc_graph(shared == nullptr ? built.allocator_.get() : shared, built.graph_)) {
        return {Code::exhausted, fmt::format("no memory to compute {} rows", rows.n_used * rows.n_tokens)};
    }
    return built;
}

uint64_t ExpertGraph::bytes() const {
    return allocator_ == nullptr ? 0 : ggml_gallocr_get_buffer_size(allocator_.get(), 0);
}

void ExpertGraph::set_activations(const RowInputs& inputs) {
    if (inputs.x_row.empty()) return ggml_backend_tensor_set(x_, inputs.x.data(), 0, inputs.x.size_bytes());
    const auto n_in = static_cast<size_t>(x_->ne[0]);
    const auto gather = [&](float* to) {
        for (size_t t = 0; t < inputs.x_row.size(); ++t)
            std::copy_n(inputs.x.data() + inputs.x_row[t] * n_in, n_in, to + t * n_in);
    };
    if (ggml_backend_buffer_is_host(x_->buffer)) return gather(static_cast<float*>(x_->data));
    std::vector<float> rows(inputs.x_row.size() * n_in);
    gather(rows.data());
    ggml_backend_tensor_set(x_, rows.data(), 0, rows.size() * sizeof(float));
}

Status ExpertGraph::run(const RowInputs& inputs, const Engine::TakeRows& take) {
    set_activations(inputs);
    ggml_backend_tensor_set(expert_, inputs.expert.data(), 0, inputs.expert.size_bytes());
    LINKCPP_TRY(device_->compute(graph_));
    const auto n_values = static_cast<size_t>(ggml_nelements(y_));
    if (ggml_backend_buffer_is_host(y_->buffer)) {
        take({static_cast<const float*>(y_->data), n_values});
        return {};
    }
    std::vector<float> rows(n_values);
    ggml_backend_tensor_get(y_, rows.data(), 0, n_values * sizeof(float));
    take(rows);
    return {};
}

}  // namespace linkcpp::moe
