#pragma once
// The buffer type that expert tensors are put into: address space only. Nothing can be read from it; the loader's data is
// looked at (which model is this?) and dropped, so that remote experts take no memory.

#include "backend/model.h"

#include <ggml-backend-impl.h>

namespace linkcpp::backend {

/// The one buffer type, "linkcpp" (`-ot '_exps=linkcpp'`).
ggml_backend_buffer_type_t expert_buffer_type();

/// A tensor in one of our buffers that is no expert and whose data is really there: an adapter's. What uses it is
/// computed here, in place.
bool is_kept(const ggml_tensor* tensor);

/// The model whose experts lie in a buffer of expert_buffer_type().
Model& model_of(ggml_backend_buffer_t buffer);

}  // namespace linkcpp::backend
