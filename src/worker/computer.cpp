#include "worker/computer.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace linkcpp::worker {

namespace {

Status compute_part(const ComputeJob& job, std::span<const uint32_t> pairs, std::span<float> y, Floats& part) {
    const size_t n_out = job.n_out;
    std::vector<uint32_t> x_row, expert;
    x_row.reserve(pairs.size());
    expert.reserve(pairs.size());
    for (uint32_t pair : pairs) {
        x_row.push_back(job.request.x_row[pair]);
        expert.push_back(job.request.expert[pair]);
    }
    part.resize(pairs.size() * n_out);
    LINKCPP_TRY(job.engine->compute(job.layer, *job.program, job.request.x, x_row, expert, part));
    for (size_t i = 0; i < pairs.size(); ++i) {
        std::copy_n(part.data() + i * n_out, n_out, y.data() + pairs[i] * n_out);
    }
    return {};
}

Status compute_rows(const ComputeJob& job, std::span<float> y, Floats& part, std::atomic<uint64_t>& pairs_done,
                    const std::atomic<bool>& stop) {
    const wire::Compute& request = job.request;
    const size_t n_pairs = request.expert.size();
    if (n_pairs <= part_pairs) {
        LINKCPP_TRY(job.engine->compute(job.layer, *job.program, request.x, request.x_row, request.expert, y));
        pairs_done += n_pairs;
        return {};
    }
    std::vector<uint32_t> pairs(n_pairs);
    std::iota(pairs.begin(), pairs.end(), 0u);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&](uint32_t a, uint32_t b) { return request.expert[a] < request.expert[b]; });
    for (size_t begin = 0; begin < n_pairs;) {
        if (stop) return {Code::unavailable, "the worker is stopping"};
        size_t end = std::min(begin + part_pairs, n_pairs);
        while (end < n_pairs && request.expert[pairs[end]] == request.expert[pairs[end - 1]])
            ++end;
        LINKCPP_TRY(compute_part(job, std::span(pairs).subspan(begin, end - begin), y, part));
        pairs_done += end - begin;
        begin = end;
    }
    return {};
}

}  // namespace

ComputeOutcome compute(const ComputeJob& job, ComputeMemory& memory, std::atomic<uint64_t>& pairs_done,
                       const std::atomic<bool>& stop) {
    SteadyClock clock;
    const Instant start = clock.now();
    ComputeOutcome outcome;
    try {
        const wire::Compute& request = job.request;
        const bool sums = request.output == wire::Output::sums;
        Floats& y = sums ? memory.rows : outcome.rows;
        y.resize(request.expert.size() * job.n_out);
        outcome.status = compute_rows(job, y, memory.part, pairs_done, stop);
        if (outcome.status.ok() && sums) {
            outcome.rows.resize(size_t{request.n_rows_out} * job.n_out);
            moe::weighted_sums(y, request.weight, request.group, job.n_out, outcome.rows);
        }
        memory.shrink();
    } catch (const std::bad_alloc&) {
        outcome.status = {Code::exhausted, "the worker has no memory left for this request"};
        outcome.rows.clear();
    }
    outcome.compute = clock.now() - start;
    return outcome;
}

}  // namespace linkcpp::worker
