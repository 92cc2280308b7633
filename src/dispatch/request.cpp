#include "dispatch/request.h"

#include <algorithm>

namespace linkcpp::dispatch {

namespace {

/// Appends an output row made of the pairs [begin, end) of one token: their weighted sum, or a single unweighted row.
void add_group(const ExpertJob& job, std::span<const uint32_t> pairs, bool summed, RequestPlan& plan) {
    const auto row = static_cast<uint32_t>(plan.target.size());
    plan.target.push_back(pairs.front());
    plan.kind.push_back(summed ? RowState::partial : RowState::raw);
    for (uint32_t pair : pairs) {
        plan.compute.group.push_back(row);
        // A single row goes through the same sums with weight 1: y * 1 is y, bit for bit.
        plan.compute.weight.push_back(summed && job.program->weighted ? job.weight[pair] : 1.0f);
        if (pair != pairs.front()) plan.covered.push_back(pair);
    }
}

/// Gives every pair its activation row, copying each row that is needed once.
void add_activations(const ExpertJob& job, RequestPlan& plan) {
    const uint32_t n_in = job.program->n_in;
    uint32_t last_row = UINT32_MAX;
    for (uint32_t pair : plan.pairs) {
        const uint32_t row = job.x_per_pair ? pair : pair / job.n_used;
        if (row != last_row) {
            const float* x = job.x.data() + static_cast<size_t>(row) * n_in;
            plan.compute.x.insert(plan.compute.x.end(), x, x + n_in);
            ++plan.compute.n_x;
            last_row = row;
        }
        plan.compute.x_row.push_back(plan.compute.n_x - 1);
    }
    plan.compute.n_in = n_in;
}

}  // namespace

RequestPlan plan_request(const ExpertJob& job, std::vector<uint32_t> pairs, uint32_t expert_begin, SplitMode mode) {
    RequestPlan plan;
    plan.pairs = std::move(pairs);
    bool any_sum = false;
    for (size_t begin = 0; begin < plan.pairs.size();) {
        const uint32_t token = plan.pairs[begin] / job.n_used;
        size_t end = begin;
        while (end < plan.pairs.size() && plan.pairs[end] / job.n_used == token)
            ++end;
        const std::span<const uint32_t> of_token(plan.pairs.data() + begin, end - begin);
        const bool whole = of_token.size() == job.n_used;
        if (job.want_sums && (whole || mode == SplitMode::sums)) {
            add_group(job, of_token, true, plan);
            any_sum = true;
        } else {
            for (size_t p = begin; p < end; ++p)
                add_group(job, std::span(plan.pairs.data() + p, 1), false, plan);
        }
        begin = end;
    }
    plan.compute.output = any_sum ? wire::Output::sums : wire::Output::rows;
    if (!any_sum) plan.compute.group.clear();
    if (!any_sum || !job.program->weighted) plan.compute.weight.clear();
    plan.compute.n_rows_out = static_cast<uint32_t>(plan.target.size());
    for (uint32_t pair : plan.pairs)
        plan.compute.expert.push_back(static_cast<uint32_t>(job.expert[pair]) - expert_begin);
    add_activations(job, plan);
    return plan;
}

void place_rows(const RequestPlan& plan, std::span<const float> rows, uint32_t n_out, JobResult& result) {
    for (size_t row = 0; row < plan.target.size(); ++row) {
        const uint32_t pair = plan.target[row];
        std::copy_n(rows.data() + row * n_out, n_out, result.rows.data() + static_cast<size_t>(pair) * n_out);
        result.state[pair] = plan.kind[row];
    }
    for (uint32_t pair : plan.covered)
        result.state[pair] = RowState::covered;
    result.rows_remote += static_cast<uint32_t>(plan.pairs.size());
}

}  // namespace linkcpp::dispatch
