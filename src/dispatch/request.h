#pragma once
// One worker's share of a job as a COMPUTE message, and how the answer's rows go back into the job's result. Pure.

#include "dispatch/job.h"
#include "wire/messages.h"

namespace linkcpp::dispatch {

/// How tokens whose experts are at several workers come back.
enum class SplitMode {
    exact,  ///< row by row; the backbone sums them in the graph's order
    sums,   ///< one partial sum per worker: fewer bytes, another order of additions, not bit-identical
};

struct RequestPlan {
    wire::Compute compute;         ///< without `program` and x
    std::vector<uint32_t> x_rows;  ///< [compute.n_x] the job's activation rows in it
    std::vector<uint32_t> pairs;   ///< the job's pairs in it
    /// For each output row: the pair of the job whose row it fills, and what it is.
    std::vector<uint32_t> target;
    std::vector<RowState> kind;
    std::vector<uint32_t> covered;  ///< pairs contained in partial sums of other pairs
};

/// `pairs`: the pairs of `job` that this worker computes, ascending. `expert_begin`: of the worker's slice.
RequestPlan plan_request(const ExpertJob& job, std::vector<uint32_t> pairs, uint32_t expert_begin, SplitMode mode);

/// The plan's request with its activations, as it is sent or to be computed here.
wire::ComputeFrame frame_of(const ExpertJob& job, const RequestPlan& plan);
wire::Compute compute_of(const ExpertJob& job, RequestPlan plan);

/// The most pairs in one request: a prompt of 4096 tokens with 8 experts each. docs/PROTOCOL.md, "Limits".
constexpr size_t max_request_pairs = 32768;

/// Cuts a worker's share of a job into as few requests as a greedy choice finds, each at most `max_bytes` of payload and
/// max_request_pairs. All pairs of one expert stay together; an expert that is too large alone is a request of its own,
/// over the cap. Pairs of each are ascending.
std::vector<std::vector<uint32_t>> cut_share(const ExpertJob& job, std::vector<uint32_t> pairs, uint64_t max_bytes);

/// Puts the rows of an answer ([n_out, n_rows_out]) where they belong.
void place_rows(const RequestPlan& plan, std::span<const float> rows, uint32_t n_out, JobResult& result);

}  // namespace linkcpp::dispatch
