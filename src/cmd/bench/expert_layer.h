#pragma once
// Work for the experts of one layer: the program of a gated feed-forward network, and batches of random tokens that go to
// random experts, the same ones every time.

#include "dispatch/job.h"
#include "moe/model_file.h"
#include "moe/program.h"
#include "wire/messages.h"

namespace linkcpp::cmd::bench {

struct ExpertLayer {
    int layer = 0;
    uint32_t n_embd = 0, n_expert = 0, n_used = 0;
    uint32_t expert_begin = 0;  ///< of those that are there, in the model
    moe::Program program;
    std::shared_ptr<const dispatch::ProgramCode> code;

    /// The model's first layer with experts. Errors: not_found (a dense model), unsupported (no gate, up and down).
    static Result<ExpertLayer> of(const moe::ModelFile& model);
    /// A layer by its shapes. Errors: unsupported.
    static Result<ExpertLayer> of(int layer, const moe::LayerShapes& shapes, int n_expert, int n_used);
};

/// Tokens with activations, distinct experts and router weights.
struct Batch {
    Batch(const ExpertLayer& layer, uint32_t n_tokens);

    uint32_t n_tokens, n_used, expert_begin;
    std::vector<float> x;         ///< [n_embd, n_tokens]
    std::vector<int32_t> expert;  ///< [n_used, n_tokens], counted in the model
    std::vector<float> weight;    ///< [n_used, n_tokens]

    dispatch::ExpertJob job(const ExpertLayer& layer) const;
    /// The same as a worker gets it: one sum per token.
    wire::Compute compute() const;
};

}  // namespace linkcpp::cmd::bench
