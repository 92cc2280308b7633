#include "dispatch/request.h"

#include <algorithm>
#include <map>

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

/// Gives every pair its activation row; each row that is needed comes once.
void add_activations(const ExpertJob& job, RequestPlan& plan) {
    plan.compute.x_row.reserve(plan.pairs.size());
    for (uint32_t pair : plan.pairs) {
        const uint32_t row = job.x_per_pair ? pair : pair / job.n_used;
        if (plan.x_rows.empty() || row != plan.x_rows.back()) plan.x_rows.push_back(row);
        plan.compute.x_row.push_back(static_cast<uint32_t>(plan.x_rows.size()) - 1);
    }
    plan.compute.n_x = static_cast<uint32_t>(plan.x_rows.size());
    plan.compute.n_in = job.program->n_in;
}

std::span<const float> activation(const ExpertJob& job, uint32_t row) {
    const uint32_t n_in = job.program->n_in;
    return job.x.subspan(static_cast<size_t>(row) * n_in, n_in);
}

}  // namespace

RequestPlan plan_request(const ExpertJob& job, std::vector<uint32_t> pairs, uint32_t expert_begin, SplitMode mode) {
    RequestPlan plan;
    plan.pairs = std::move(pairs);
    plan.compute.group.reserve(plan.pairs.size());
    plan.compute.weight.reserve(plan.pairs.size());
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
    plan.compute.expert.reserve(plan.pairs.size());
    for (uint32_t pair : plan.pairs)
        plan.compute.expert.push_back(static_cast<uint32_t>(job.expert[pair]) - expert_begin);
    add_activations(job, plan);
    return plan;
}

wire::ComputeFrame frame_of(const ExpertJob& job, const RequestPlan& plan) {
    wire::ComputeFrame frame(plan.compute);
    for (uint32_t row : plan.x_rows)
        frame.add_rows(activation(job, row));
    return frame;
}

wire::Compute compute_of(const ExpertJob& job, RequestPlan plan) {
    plan.compute.x.reserve(plan.x_rows.size() * job.program->n_in);
    for (uint32_t row : plan.x_rows) {
        const auto x = activation(job, row);
        plan.compute.x.insert(plan.compute.x.end(), x.begin(), x.end());
    }
    return std::move(plan.compute);
}

std::vector<std::vector<uint32_t>> cut_share(const ExpertJob& job, std::vector<uint32_t> pairs, uint64_t max_bytes) {
    const auto fits = [&](size_t n_x, size_t n_pairs) {
        return n_pairs <= max_request_pairs &&
               wire::compute_payload_bytes(wire::Output::sums, n_x, job.program->n_in, n_pairs, true) <= max_bytes;
    };
    const auto row = [&](uint32_t pair) { return job.x_per_pair ? pair : pair / job.n_used; };
    const size_t n_rows = job.x_per_pair ? job.n_pairs() : job.n_tokens;
    if (fits(std::min(pairs.size(), n_rows), pairs.size())) return {std::move(pairs)};

    std::map<int32_t, std::vector<uint32_t>> by_expert;
    for (uint32_t pair : pairs)
        by_expert[job.expert[pair]].push_back(pair);
    std::vector<std::vector<uint32_t>> requests(1);
    std::vector<size_t> used_in(n_rows, SIZE_MAX);  // the last request that has this activation row
    size_t n_x = 0;
    for (const auto& [expert, of_expert] : by_expert) {
        const auto is_new = [&](uint32_t pair) { return used_in[row(pair)] != requests.size(); };
        auto more = static_cast<size_t>(std::count_if(of_expert.begin(), of_expert.end(), is_new));
        if (!requests.back().empty() && !fits(n_x + more, requests.back().size() + of_expert.size())) {
            requests.emplace_back();
            n_x = 0;
            more = of_expert.size();
        }
        n_x += more;
        for (uint32_t pair : of_expert) {
            used_in[row(pair)] = requests.size();
            requests.back().push_back(pair);
        }
    }
    for (auto& request : requests)
        std::sort(request.begin(), request.end());
    return requests;
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
