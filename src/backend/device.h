#pragma once
// The two faces of our ggml device. The visible one is registered: llama.cpp's loader asks it where expert tensors may go.
// The hidden one belongs to the backend instances: its buffer type is the CPU's, so the scheduler gives our operations
// plain CPU tensors and copies no activations.

#include <ggml-backend-impl.h>

namespace linkcpp::backend {

ggml_backend_dev_t visible_device();
ggml_backend_dev_t hidden_device();
ggml_backend_reg_t registration();  ///< for ggml_backend_register(), or a plugin's ggml_backend_init()

/// A backend instance (one per llama_context). Cheap: opens no connection.
ggml_backend_t new_backend();

}  // namespace linkcpp::backend
