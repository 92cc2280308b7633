#pragma once
// Which tensors a model has: llama.cpp itself says so, when it is asked to make a model from metadata alone. Its weights
// are given addresses then, but are never written, so they take no memory.

#include "recipe.h"

#include <array>
#include <ggml.h>
#include <string>
#include <vector>

namespace linkcpp::maker {

struct TensorPlan {
    std::string name;
    std::array<int64_t, GGML_MAX_DIMS> ne;
    ggml_type type = GGML_TYPE_F32;
};

/// The tensors of the recipe's model with their types. Errors: unsupported (llama.cpp makes no model of this metadata; what
/// it says is in the message), invalid_argument (a type that does not fit a tensor's rows).
Result<std::vector<TensorPlan>> plan_tensors(const Recipe& recipe, gguf_context* metadata);

}  // namespace linkcpp::maker
