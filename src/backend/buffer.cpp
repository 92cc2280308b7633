#include "backend/buffer.h"

#include "backend/device.h"
#include "base/log.h"

#include <algorithm>
#include <cstring>
#include <sys/mman.h>

namespace linkcpp::backend {

namespace {

struct BufferContext {
    void* base = nullptr;
    size_t size = 0;
    bool readable = false;  // holds tensors that are no experts, with their data
    Model model;
};

BufferContext& context_of(ggml_backend_buffer_t buffer) { return *static_cast<BufferContext*>(buffer->context); }

void free_buffer(ggml_backend_buffer_t buffer) {
    BufferContext* context = &context_of(buffer);
    if (context->base != nullptr) munmap(context->base, context->size);
    delete context;
}

void* get_base(ggml_backend_buffer_t buffer) { return context_of(buffer).base; }

/// A LoRA adapter for experts puts its matrices where the experts are. They are small, nobody else has them, and are kept.
/// Only what is written to takes memory.
bool keeps(ggml_backend_buffer_t buffer, const ggml_tensor* tensor) {
    if (moe::ExpertTensorName::parse(tensor->name)) return false;
    BufferContext& context = context_of(buffer);
    if (!context.readable) context.readable = mprotect(context.base, context.size, PROT_READ | PROT_WRITE) == 0;
    return context.readable;
}

void set_tensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
    if (keeps(buffer, tensor)) {
        std::memcpy(static_cast<char*>(tensor->data) + offset, data, size);
        return;
    }
    // The loader sets whole tensors. Anything else (a tool that edits weights) would be lost here.
    if (offset != 0 || size != ggml_nbytes(tensor)) {
        log_error("{}: a part of an expert tensor was written; linkcpp does not keep it, results would be wrong. Run "
                  "without linkcpp for this.",
                  tensor->name);
        return;
    }
    context_of(buffer).model.tensor_loaded(tensor, {static_cast<const uint8_t*>(data), size});
}

void get_tensor(ggml_backend_buffer_t buffer, const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
    if (keeps(buffer, tensor)) {
        std::memcpy(data, static_cast<const char*>(tensor->data) + offset, size);
        return;
    }
    log_error("{}: its bytes are asked for, but experts are not kept in memory", tensor->name);
    std::memset(data, 0, size);
}

void memset_tensor(ggml_backend_buffer_t, ggml_tensor*, uint8_t, size_t, size_t) {}
void clear(ggml_backend_buffer_t, uint8_t) {}

constexpr ggml_backend_buffer_i buffer_interface = {
    /* .free_buffer   = */ free_buffer,
    /* .get_base      = */ get_base,
    /* .init_tensor   = */ nullptr,
    /* .memset_tensor = */ memset_tensor,
    /* .set_tensor    = */ set_tensor,
    /* .get_tensor    = */ get_tensor,
    /* .set_tensor_2d = */ nullptr,
    /* .get_tensor_2d = */ nullptr,
    /* .cpy_tensor    = */ nullptr,
    /* .clear         = */ clear,
    /* .reset         = */ nullptr,
};

const char* type_name(ggml_backend_buffer_type_t) { return "linkcpp"; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    auto context = std::make_unique<BufferContext>();
    if (size > 0) {
        void* base = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            log_error("{} bytes of address space cannot be reserved", size);
            return nullptr;
        }
        Runtime::get().expert_tensors_seen = true;  // also when -ot put them here without asking supports_op
        context->base = base;
        context->size = size;
    }
    return ggml_backend_buffer_init(type, buffer_interface, context.release(), size);
}

size_t alignment(ggml_backend_buffer_type_t) { return 64; }
bool is_host(ggml_backend_buffer_type_t) { return false; }

constexpr ggml_backend_buffer_type_i type_interface = {
    /* .get_name       = */ type_name,
    /* .alloc_buffer   = */ alloc_buffer,
    /* .get_alignment  = */ alignment,
    /* .get_max_size   = */ nullptr,
    /* .get_alloc_size = */ nullptr,
    /* .is_host        = */ is_host,
};

}  // namespace

ggml_backend_buffer_type_t expert_buffer_type() {
    static ggml_backend_buffer_type type = {type_interface, visible_device(), nullptr};
    return &type;
}

bool is_kept(const ggml_tensor* tensor) { return is_ours(tensor) && !moe::ExpertTensorName::parse(tensor->name); }

Model& model_of(ggml_backend_buffer_t buffer) { return context_of(buffer).model; }

}  // namespace linkcpp::backend
