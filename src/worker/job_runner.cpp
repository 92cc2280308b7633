#include "worker/job_runner.h"

#include <algorithm>
#include <new>
#include <numeric>

namespace linkcpp::worker {

ComputeOutcome JobRunner::run(const ComputeJob& job, std::atomic<uint64_t>& pairs_done, const std::atomic<bool>& stop) {
    const Instant start = clock_.now();
    ComputeOutcome outcome;
    try {
        outcome.rows.resize(size_t{job.request.n_rows_out} * job.n_out);
        outcome.status = run_into(job, outcome.rows, pairs_done, stop);
        if (rows_.capacity() * sizeof(float) > max_kept_bytes) rows_ = {};
    } catch (const std::bad_alloc&) {
        outcome.status = {Code::exhausted, "the worker has no memory left for this request"};
        outcome.rows.clear();
    }
    outcome.compute = clock_.now() - start;
    return outcome;
}

bool JobRunner::goes_at_once(const ComputeJob& job) const {
    const size_t n_pairs = job.request.expert.size();
    if (n_pairs <= part_pairs) return true;
    return job.at_once && per_pair_ != Duration(0) && n_pairs * per_pair_ <= patience_;
}

Status JobRunner::run_into(const ComputeJob& job, std::span<float> out, std::atomic<uint64_t>& pairs_done,
                           const std::atomic<bool>& stop) {
    const wire::Compute& request = job.request;
    if (goes_at_once(job)) {
        LINKCPP_TRY(run_at_once(job, out));
        pairs_done += request.expert.size();
        return {};
    }
    if (request.output == wire::Output::rows) return run_parts(job, out, pairs_done, stop);
    rows_.resize(request.expert.size() * job.n_out);
    LINKCPP_TRY(run_parts(job, rows_, pairs_done, stop));
    moe::weighted_sums(rows_, request.weight, request.group, job.n_out, out);
    return {};
}

/// Rows or sums straight from where they were computed.
Status JobRunner::run_at_once(const ComputeJob& job, std::span<float> out) {
    const wire::Compute& request = job.request;
    const Instant start = clock_.now();
    LINKCPP_TRY(job.engine->compute_rows(job.layer, *job.program, request.x, request.x_row, request.expert,
                                         [&](std::span<const float> y) {
                                             if (request.output == wire::Output::sums) {
                                                 moe::weighted_sums(y, request.weight, request.group, job.n_out, out);
                                             } else {
                                                 std::copy(y.begin(), y.end(), out.begin());
                                             }
                                         }));
    note_speed(request.expert.size(), clock_.now() - start);
    return {};
}

Status JobRunner::run_parts(const ComputeJob& job, std::span<float> y, std::atomic<uint64_t>& pairs_done,
                            const std::atomic<bool>& stop) {
    const std::vector<uint32_t>& expert = job.request.expert;
    std::vector<uint32_t> pairs(expert.size());
    std::iota(pairs.begin(), pairs.end(), 0u);
    std::stable_sort(pairs.begin(), pairs.end(), [&](uint32_t a, uint32_t b) { return expert[a] < expert[b]; });
    for (size_t begin = 0; begin < pairs.size();) {
        if (stop) return {Code::unavailable, "the worker is stopping"};
        size_t end = std::min(begin + part_pairs, pairs.size());
        while (end < pairs.size() && expert[pairs[end]] == expert[pairs[end - 1]])
            ++end;
        LINKCPP_TRY(run_part(job, std::span(pairs).subspan(begin, end - begin), y));
        pairs_done += end - begin;
        begin = end;
    }
    return {};
}

Status JobRunner::run_part(const ComputeJob& job, std::span<const uint32_t> pairs, std::span<float> y) {
    const size_t n_out = job.n_out;
    const Instant start = clock_.now();
    std::vector<uint32_t> x_row, expert;
    x_row.reserve(pairs.size());
    expert.reserve(pairs.size());
    for (uint32_t pair : pairs) {
        x_row.push_back(job.request.x_row[pair]);
        expert.push_back(job.request.expert[pair]);
    }
    LINKCPP_TRY(job.engine->compute_rows(
        job.layer, *job.program, job.request.x, x_row, expert, [&](std::span<const float> part) {
            for (size_t i = 0; i < pairs.size(); ++i)
                std::copy_n(part.data() + i * n_out, n_out, y.data() + pairs[i] * n_out);
        }));
    note_speed(pairs.size(), clock_.now() - start);
    return {};
}

/// Few pairs tell nothing: they wait for weights to come from memory.
void JobRunner::note_speed(size_t n_pairs, Duration time) {
    if (n_pairs >= part_pairs) per_pair_ = std::max(time / static_cast<Duration::rep>(n_pairs), Duration(1));
}

}  // namespace linkcpp::worker
