#pragma once
// What a model is to be: architecture, geometry, tensor types; and the GGUF metadata that follows from it. llama.cpp v0.4.0
// reads each architecture's metadata by keys of its own; a key that an architecture does not know is ignored, so one set
// of keys serves nearly all, and the few that need something else are named in recipe.cpp.

#include "base/status.h"

#include <cstdint>
#include <gguf.h>
#include <memory>
#include <string>
#include <vector>

namespace linkcpp::maker {

struct FreeGguf {
    void operator()(gguf_context* context) const { gguf_free(context); }
};
using Metadata = std::unique_ptr<gguf_context, FreeGguf>;

/// The first rule whose expression is found in a tensor's name decides its type.
struct TypeRule {
    std::string expression;
    ggml_type type;
};

struct Recipe {
    std::string arch = "qwen3moe";  ///< as llama.cpp names it
    uint32_t n_layer = 0;           ///< 0: the fewest that show every kind of layer
    uint32_t n_embd = 256, n_head = 4, n_head_kv = 2;
    uint32_t n_embd_head = 0;  ///< 0: n_embd / n_head
    uint32_t n_ff = 256;       ///< of layers without experts
    uint32_t n_expert = 8, n_expert_used = 2, n_ff_exp = 256, n_ff_shexp = 256;
    uint32_t n_layer_dense = 0;  ///< leading layers without experts, where the architecture has them
    uint32_t n_ctx_train = 4096;
    uint32_t n_vocab = 320;
    bool has_vocab = true;  ///< byte tokens and filler words; else token ids only

    bool merged_gate_up = false;  ///< one tensor for gate and up, where the architecture allows it
    bool expert_scales = false;   ///< a float per expert and matrix (`*.scale`), where it allows them
    std::vector<TypeRule> types;  ///< before the two below
    ggml_type expert_type = GGML_TYPE_F32, dense_type = GGML_TYPE_F32;
    std::string without;           ///< expression: tensors to leave out
    std::vector<std::string> set;  ///< "key=type:value", replaces what the recipe says
    uint64_t seed = 1;
};

/// Errors: invalid_argument (a `set` that cannot be read, a geometry that makes no model).
Result<Metadata> make_metadata(const Recipe& recipe);

}  // namespace linkcpp::maker
