#pragma once
// Inside of the room: an expert program as a ggml graph for a given number of rows, ready to run again and again.

#include "moe/engine.h"
#include "moe/expert_weights.h"

namespace linkcpp::moe {

/// The rows of one computation: `n_tokens` activation rows, each used by `n_used` pairs.
struct RowShape {
    int64_t n_used = 1;  ///< pairs per activation row: 1, or the same number for all
    int64_t n_tokens = 0;
    auto operator<=>(const RowShape&) const = default;
};

/// What a graph computes from. Activation row t is x[:, t], or x[:, x_row[t]] where x_row is not empty.
struct RowInputs {
    std::span<const float> x;         ///< [n_in, …]
    std::span<const uint32_t> x_row;  ///< [n_tokens], or empty
    std::span<const int32_t> expert;  ///< [n_used, n_tokens]
};

class ExpertGraph {
  public:
    /// `program` was checked against the layer's shapes. Errors: unsupported (the device cannot run an operation),
    /// exhausted (memory). `shared`: intermediate values lie there, until the next graph that is built with it.
    static Result<ExpertGraph> build(GgmlDevice& device, const LayerWeights& weights, const Program& program,
                                     ProgramShape widths, RowShape rows, ggml_gallocr_t shared = nullptr);

    /// `take` gets [n_out, n_used, n_tokens]. Errors: exhausted.
    Status run(const RowInputs& inputs, const Engine::TakeRows& take);
    /// Own memory for intermediate values.
    uint64_t bytes() const;

  private:
    void set_activations(const RowInputs& inputs);

    GgmlDevice* device_ = nullptr;
    ggml_context_ptr context_;
    ggml_gallocr_ptr allocator_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* x_ = nullptr;
    ggml_tensor* expert_ = nullptr;
    ggml_tensor* y_ = nullptr;
};

}  // namespace linkcpp::moe
