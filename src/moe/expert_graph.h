#pragma once
// Inside of the room: an expert program as a ggml graph for a given number of rows, ready to run again and again.

#include "moe/expert_weights.h"

namespace linkcpp::moe {

/// The rows of one computation: `n_tokens` activation rows, each used by `n_used` pairs.
struct RowShape {
    int64_t n_used = 1;  ///< pairs per activation row: 1, or the same number for all
    int64_t n_tokens = 0;
    auto operator<=>(const RowShape&) const = default;
};

class ExpertGraph {
  public:
    /// `program` was checked against the layer's shapes. Errors: unsupported (the device cannot run an operation),
    /// exhausted (memory). `shared`: intermediate values lie there, until the next graph that is built with it.
    static Result<ExpertGraph> build(GgmlDevice& device, const LayerWeights& weights, const Program& program,
                                     ProgramShape widths, RowShape rows, ggml_gallocr_t shared = nullptr);

    /// x: [n_in, n_tokens]; expert: [n_used, n_tokens]; y: [n_out, n_used, n_tokens].
    Status run(std::span<const float> x, std::span<const int32_t> expert, std::span<float> y);
    /// Own memory for intermediate values.
    uint64_t bytes() const;

  private:
    GgmlDevice* device_ = nullptr;
    ggml_context_ptr context_;
    ggml_gallocr_ptr allocator_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* x_ = nullptr;
    ggml_tensor* expert_ = nullptr;
    ggml_tensor* y_ = nullptr;
};

}  // namespace linkcpp::moe
