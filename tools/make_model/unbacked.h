#pragma once
// A ggml buffer type of address space that no memory stands behind until somebody writes: lets llama.cpp lay out a model of
// any size, in f32, only to tell its tensors. Buffers live as long as the process.

#include <ggml-backend.h>

namespace linkcpp::maker {

ggml_backend_buffer_type_t unbacked_buffer_type();

}  // namespace linkcpp::maker
