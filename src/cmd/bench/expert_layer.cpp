#include "cmd/bench/expert_layer.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace linkcpp::cmd::bench {

namespace {

const moe::LayerShapes::Entry& entry(const moe::LayerShapes& shapes, moe::Matrix matrix) {
    return shapes.matrix[static_cast<size_t>(matrix)];
}

/// down(silu(gate(x)) * up(x)); nothing where the layer is built in another way.
std::vector<moe::Step> gated(const moe::LayerShapes& shapes) {
    using moe::Matrix, moe::Op;
    if (!entry(shapes, Matrix::down).present) return {};
    if (entry(shapes, Matrix::gate_up).present)
        return {{Op::matmul, Matrix::gate_up, 0, 0, {0, 0}},
                {Op::first_half, Matrix::up, 1, 0, {0, 0}},
                {Op::second_half, Matrix::up, 1, 0, {0, 0}},
                {Op::swiglu, Matrix::up, 2, 3, {0, 0}},
                {Op::matmul, Matrix::down, 4, 0, {0, 0}}};
    if (!entry(shapes, Matrix::gate).present || !entry(shapes, Matrix::up).present) return {};
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
    moe::LayerShapes shapes;
    for (const moe::ExpertTensor* tensor : found->tensors) {
        if (tensor->name.kind.role == moe::Role::weight)
            shapes.matrix[static_cast<size_t>(tensor->name.kind.matrix)] = {true, false, tensor->ne[0], tensor->ne[1]};
    }
    return of(found->layer, shapes, found->n_expert, model.info().n_expert_used);
}

Result<ExpertLayer> ExpertLayer::of(int number, const moe::LayerShapes& shapes, int n_expert, int n_used) {
    ExpertLayer layer;
    layer.layer = number;
    layer.n_expert = static_cast<uint32_t>(n_expert);
    layer.n_used = static_cast<uint32_t>(std::clamp(n_used, 1, n_expert));
    layer.program.weighted = true;
    layer.program.steps = gated(shapes);
    if (layer.program.steps.empty())
        return {Code::unsupported, "experts without gate, up and down matrices cannot be measured alone"};
    layer.n_embd = static_cast<uint32_t>(entry(shapes, moe::Matrix::down).n_out);
    auto code = std::make_shared<dispatch::ProgramCode>();
    code->code = moe::encode_program(layer.program);
    code->n_in = code->n_out = layer.n_embd;
    code->weighted = true;
    layer.code = std::move(code);
    return layer;
}

Batch::Batch(const ExpertLayer& layer, uint32_t n)
    : n_tokens(n), n_used(layer.n_used), expert_begin(layer.expert_begin) {
    std::minstd_rand random(n);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < size_t{layer.n_embd} * n_tokens; ++i)
        x.push_back(normal(random));
    std::vector<int32_t> experts(layer.n_expert);
    std::iota(experts.begin(), experts.end(), static_cast<int32_t>(expert_begin));
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
        compute.expert.push_back(static_cast<uint32_t>(expert[p]) - expert_begin);
    }
    compute.weight = weight;
    compute.x.assign(x.begin(), x.end());
    return compute;
}

}  // namespace linkcpp::cmd::bench
