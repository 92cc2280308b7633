#pragma once
// Between ggml's tensors and dispatch's spans: activations, ids and weights in, the graph's output tensor out. Pure.

#include "backend/region.h"
#include "dispatch/job.h"

namespace linkcpp::backend {

/// Copies of what a job reads, contiguous. The graph's allocator may give the output the memory of an input, and a
/// repeated request needs the inputs again, so they are not read in place.
struct JobInputs {
    std::vector<float> x;
    std::vector<int32_t> expert;
    std::vector<float> weight;
};

/// The job of a region. Only the slots that are summed are asked for (a warm-up selects all experts, but sums few).
/// Errors: unsupported (shapes that no job has), invalid_argument (expert ids outside [0, n_expert)).
Status make_job(const Region& region, std::shared_ptr<const dispatch::ProgramCode> program, int n_expert,
                JobInputs& inputs, dispatch::ExpertJob& job);

/// Weights and sums what came back as rows, in the graph's order, and writes region.out. Every pair must be there.
void write_output(const Region& region, const dispatch::ExpertJob& job, const dispatch::JobResult& result);

}  // namespace linkcpp::backend
