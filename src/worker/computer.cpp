#include "worker/computer.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace linkcpp::worker {

namespace {

/// All pairs at once, rows or sums straight from where they were computed.
Status compute_short(const ComputeJob& job, std::span<float> out) {
    const wire::Compute& request = job.request;
    return job.engine->compute_rows(job.layer, *job.program, request.x, request.x_row, request.expert,
                                    [&](std::span<const float> y) {
                                        if (request.output == wire::Output::sums) {
                                            moe::weighted_sums(y, request.weight, request.group, job.n_out, out);
                                        } else {
                                            std::copy(y.begin(), y.end(), out.begin());
                                        }
                                    });
}

Status compute_part(const ComputeJob& job, std::span<const uint32_t> pairs, std::span<float> y) {
    const size_t n_out = job.n_out;
    std::vector<uint32_t> x_row, expert;
    x_row.reserve(pairs.size());
    expert.reserve(pairs.size());
    for (uint32_t pair : pairs) {
        x_row.push_back(job.request.x_row[pair]);
        expert.push_back(job.request.expert[pair]);
    }
    return job.engine->compute_rows(job.layer, *job.program, job.request.x, x_row, expert,
                                    [&](std::span<const float> part) {
                                        for (size_t i = 0; i < pairs.size(); ++i)
                                            std::copy_n(part.data() + i * n_out, n_out, y.data() + pairs[i] * n_out);
                                    });
}

Status compute_parts(const ComputeJob& job, std::span<float> y, std::atomic<uint64_t>& pairs_done,
                     const std::atomic<bool>& stop) {
    const wire::Compute& request = job.request;
    const size_t n_pairs = request.expert.size();
    std::vector<uint32_t> pairs(n_pairs);
    std::iota(pairs.begin(), pairs.end(), 0u);
    std::stable_sort(pairs.begin(), pairs.end(),
                     [&](uint32_t a, uint32_t b) { return request.expert[a] < request.expert[b]; });
    for (size_t begin = 0; begin < n_pairs;) {
        if (stop) return {Code::unavailable, "the worker is stopping"};
        size_t end = std::min(begin + part_pairs, n_pairs);
        while (end < n_pairs && request.expert[pairs[end]] == request.expert[pairs[end - 1]])
            ++end;
        LINKCPP_TRY(compute_part(job, std::span(pairs).subspan(begin, end - begin), y));
        pairs_done += end - begin;
        begin = end;
    }
    return {};
}

Status compute_into(const ComputeJob& job, ComputeMemory& memory, std::span<float> out,
                    std::atomic<uint64_t>& pairs_done, const std::atomic<bool>& stop) {
    const wire::Compute& request = job.request;
    if (request.expert.size() <= part_pairs) {
        LINKCPP_TRY(compute_short(job, out));
        pairs_done += request.expert.size();
        return {};
    }
    if (request.output == wire::Output::rows) return compute_parts(job, out, pairs_done, stop);
    memory.rows.resize(request.expert.size() * job.n_out);
    LINKCPP_TRY(compute_parts(job, memory.rows, pairs_done, stop));
    moe::weighted_sums(memory.rows, request.weight, request.group, job.n_out, out);
    return {};
}

}  // namespace

ComputeOutcome compute(const ComputeJob& job, ComputeMemory& memory, std::atomic<uint64_t>& pairs_done,
                       const std::atomic<bool>& stop) {
    SteadyClock clock;
    const Instant start = clock.now();
    ComputeOutcome outcome;
    try {
        outcome.rows.resize(size_t{job.request.n_rows_out} * job.n_out);
        outcome.status = compute_into(job, memory, outcome.rows, pairs_done, stop);
        memory.shrink();
    } catch (const std::bad_alloc&) {
        outcome.status = {Code::exhausted, "the worker has no memory left for this request"};
        outcome.rows.clear();
    }
    outcome.compute = clock.now() - start;
    return outcome;
}

}  // namespace linkcpp::worker
