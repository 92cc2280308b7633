#include "cmd/bench/expert_layer.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace linkcpp::cmd::bench {

namespace {

const moe::ExpertTensor* matrix_of(const moe::ModelLayer& layer, moe::Matrix matrix) {
    for (const moe::ExpertTensor* tensor : layer.tensors) {
        if (tensor->name.kind == moe::TensorKind{matrix, moe::Role::weight}) return tensor;
    }
    return nullptr;
}

/// down(silu(gate(x)) * up(x)); nothing where the layer is built in another way.
std::vector<moe::Step> gated(const moe::ModelLayer& layer) {
    using moe::Matrix, moe::Op;
    if (matrix_of(layer, Matrix::down) == nullptr) return {};
    if (matrix_of(layer, Matrix::gate_up) != nullptr)
        return {{Op::matmul, Matrix::gate_up, 0, 0, {0, 0}},
                {Op::first_half, Matrix::up, 1, 0, {0, 0}},
                {Op::second_half, Matrix::up, 1, 0, {0, 0}},
                {Op::swiglu, Matrix::up, 2, 3, {0, 0}},
                {Op::matmul, Matrix::down, 4, 0, {0, 0}}};
    if (matrix_of(layer, Matrix::gate) == nullptr || matrix_of(layer, Matrix::up) == nullptr) return {};
    return {{Op::matmul, Matrix::gate, 0, 0, {0, 0}},
            {Op::matmul, Matrix::up, 0, 0, {0, 0}},
            {Op::swiglu, Matrix::up, 1, 2, {0, 0}},
            {Op::matmul, Matrix::down, 3, 0, {0, 0}}};
}

}  // namespace

Result<ExpertLayer> ExpertLayer::of(const moe::ModelFile& model) {
    const auto found = std::find_if(model.layers().begin(), model.layers().end(),
                                    [](const moe::ModelLayer& layer) { return layer.n_expert > 0; });
    if (found == model.layers().end()) return {Code::not_found, "the model has no experts"};
    ExpertLayer layer;
    layer.layer = found->layer;
    layer.n_expert = static_cast<uint32_t>(found->n_expert);
    layer.n_used = std::min(layer.n_expert, static_cast<uint32_t>(std::max(1, model.info().n_expert_used)));
    layer.program.weighted = true;
    layer.program.steps = gated(*found);
    if (layer.program.steps.empty())
        return {Code::unsupported, "experts without gate, up and down matrices cannot be measured alone"};
    const moe::ExpertTensor* down = matrix_of(*found, moe::Matrix::down);
    layer.n_embd = static_cast<uint32_t>(down->ne[1]);
    auto code = std::make_shared<dispatch::ProgramCode>();
    code->code = moe::encode_program(layer.program);
    code->n_in = code->n_out = layer.n_embd;
    code->weighted = true;
    layer.code = std::move(code);
    return layer;
}

Batch::Batch(const ExpertLayer& layer, uint32_t n) : n_tokens(n), n_used(layer.n_used) {
    std::minstd_rand random(n);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < size_t{layer.n_embd} * n_tokens; ++i)
        x.push_back(normal(random));
    std::vector<int32_t> experts(layer.n_expert);
    std::iota(experts.begin(), experts.end(), 0);
    for (uint32_t t = 0; t < n_tokens; ++t) {
        std::shuffle(experts.begin(), experts.end(), random);
        expert.insert(expert.end(), experts.begin(), experts.begin() + n_used);
        weight.insert(weight.end(), n_used, 1.0f / static_cast<float>(n_used));
    }
}

dispatch::ExpertJob Batch::job(const ExpertLayer& layer) const {
    dispatch::ExpertJob job;
    job.layer = static_cast<uint32_t>(layer.layer);
    job.program = layer.code;
    job.n_tokens = n_tokens;
    job.n_used = n_used;
    job.x = x;
    job.expert = expert;
    job.weight = weight;
    return job;
}

wire::Compute Batch::compute() const {
    wire::Compute compute;
    compute.output = wire::Output::sums;
    compute.n_x = compute.n_rows_out = n_tokens;
    compute.n_in = static_cast<uint32_t>(x.size() / n_tokens);
    for (uint32_t p = 0; p < n_tokens * n_used; ++p) {
        compute.x_row.push_back(p / n_used);
        compute.group.push_back(p / n_used);
        compute.expert.push_back(static_cast<uint32_t>(expert[p]));
    }
    compute.weight = weight;
    compute.x = x;
    return compute;
}

}  // namespace linkcpp::cmd::bench
