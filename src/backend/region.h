#pragma once
// Finds the parts of llama.cpp's graph that can be computed elsewhere: a region begins at a MUL_MAT_ID with expert weights
// of ours and goes on as long as the operations fit the vocabulary of expert programs and nobody outside looks at an
// intermediate value. In the usual graph that is a whole routed FFN, with its weighting and its sum over the experts; in
// an unusual one it is less, at least the multiplication itself. Pure functions of the graph.

#include "moe/program.h"

#include <ggml-backend-impl.h>
#include <ggml-impl.h>
#include <string>
#include <vector>

namespace linkcpp::backend {

struct Region {
    int begin = 0, end = 0;  ///< nodes [begin, end) of the graph
    int layer = 0;
    ggml_backend_buffer_t buffer = nullptr;  ///< of the weights: tells which model this is
    moe::Program program;
    const ggml_tensor* x = nullptr;       ///< [n_in, 1 or n_used, n_tokens] f32
    const ggml_tensor* expert = nullptr;  ///< [n_used, n_tokens] i32
    const ggml_tensor* weight = nullptr;  ///< [1, n_used, n_tokens] f32, or null
    int n_summed = 0;                     ///< output = sum over the first n_summed experts of a token; 0: no sum
    ggml_tensor* out = nullptr;           ///< [n_out, n_tokens] when summed, else [n_out, n_used, n_tokens]
};

/// A step of a graph_compute: a region, or the nodes [begin, end) that stay local.
struct GraphPart {
    bool is_region = false;
    Region region;
    int begin = 0, end = 0;
};

/// Is this a weight or bias that lies in a buffer of ours? Views are looked through.
bool is_ours(const ggml_tensor* tensor);

/// Cuts a graph into regions and the rest, in order.
std::vector<GraphPart> cut_graph(const ggml_cgraph* graph);

/// The operations that a region may contain, for supports_op(): an elementwise operation is claimed only when it traces
/// back to a MUL_MAT_ID of ours.
bool continues_region(const ggml_tensor* op);

}  // namespace linkcpp::backend
