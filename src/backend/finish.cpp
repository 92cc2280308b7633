#include "backend/finish.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::backend {

namespace {

template <typename T>
T* at(const ggml_tensor* t, int64_t i1, int64_t i2) {
    return reinterpret_cast<T*>(static_cast<char*>(t->data) + static_cast<size_t>(i1) * t->nb[1] +
                                static_cast<size_t>(i2) * t->nb[2]);
}

}  // namespace

Status make_job(const Region& region, std::shared_ptr<const dispatch::ProgramCode> program, int n_expert,
                JobInputs& inputs, dispatch::ExpertJob& job) {
    const ggml_tensor* x = region.x;
    const ggml_tensor* expert = region.expert;
    const int64_t n_selected = expert->ne[0], n_tokens = expert->ne[1];
    const int64_t n_used = region.n_summed > 0 ? region.n_summed : n_selected;
    if (expert->ne[2] != 1 || expert->ne[3] != 1 || x->ne[2] != n_tokens || (x->ne[1] != 1 && x->ne[1] != n_selected) ||
        x->ne[0] != program->n_in || n_tokens * n_selected > INT32_MAX) {
        return {Code::unsupported, fmt::format("layer {}: rows [{}, {}, {}] and experts [{}, {}] have an unknown form",
                                               region.layer, x->ne[0], x->ne[1], x->ne[2], n_selected, n_tokens)};
    }
    job.layer = static_cast<uint32_t>(region.layer);
    job.n_tokens = static_cast<uint32_t>(n_tokens);
    job.n_used = static_cast<uint32_t>(n_used);
    job.x_per_pair = x->ne[1] != 1 && n_selected > 1;
    job.want_sums = region.n_summed > 0;

    const int64_t rows_per_token = job.x_per_pair ? n_used : 1;
    inputs.x.resize(static_cast<size_t>(n_tokens * rows_per_token * x->ne[0]));
    inputs.expert.resize(static_cast<size_t>(n_tokens * n_used));
    inputs.weight.resize(region.weight != nullptr ? inputs.expert.size() : 0);
    float* x_out = inputs.x.data();
    for (int64_t t = 0; t < n_tokens; ++t) {
        for (int64_t r = 0; r < rows_per_token; ++r, x_out += x->ne[0])
            std::copy_n(at<const float>(x, r, t), x->ne[0], x_out);
        for (int64_t slot = 0; slot < n_used; ++slot) {
            const int32_t id =
                at<const int32_t>(expert, t, 0)[static_cast<size_t>(slot) * (expert->nb[0] / sizeof(int32_t))];
            if (id < 0 || id >= n_expert)
                return {Code::invalid_argument,
                        fmt::format("layer {}: the router selects expert {} of {}", region.layer, id, n_expert)};
            const size_t pair = static_cast<size_t>(t * n_used + slot);
            inputs.expert[pair] = id;
            if (region.weight != nullptr) inputs.weight[pair] = *at<const float>(region.weight, slot, t);
        }
    }
    job.program = std::move(program);
    job.x = inputs.x;
    job.expert = inputs.expert;
    job.weight = inputs.weight;
    return {};
}

void write_output(const Region& region, const dispatch::ExpertJob& job, const dispatch::JobResult& result) {
    const size_t n_out = job.program->n_out;
    for (uint32_t token = 0; token < job.n_tokens; ++token) {
        float* sum = job.want_sums ? at<float>(region.out, token, 0) : nullptr;
        for (uint32_t slot = 0; slot < job.n_used; ++slot) {
            const uint32_t pair = token * job.n_used + slot;
            const float* row = result.rows.data() + static_cast<size_t>(pair) * n_out;
            if (!job.want_sums) {
                std::copy_n(row, n_out, at<float>(region.out, slot, token));
                continue;
            }
            const dispatch::RowState state = result.state[pair];
            if (state == dispatch::RowState::covered) continue;
            const bool weigh = state == dispatch::RowState::raw && job.program->weighted;
            // One rounding per multiplication and per addition, from slot 0 on: what MUL and the chain of ADD do.
            const float w = weigh ? job.weight[pair] : 1.0f;
            if (slot == 0) {
                for (size_t i = 0; i < n_out; ++i)
                    sum[i] = row[i] * w;
            } else {
                for (size_t i = 0; i < n_out; ++i)
                    sum[i] = sum[i] + row[i] * w;
            }
        }
    }
}

}  // namespace linkcpp::backend
