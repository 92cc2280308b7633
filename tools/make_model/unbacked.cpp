#include "unbacked.h"

#include <ggml-backend-impl.h>
#include <sys/mman.h>

namespace linkcpp::maker {

namespace {

const char* name(ggml_backend_buffer_type_t) { return "unbacked"; }

ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t, size_t size) {
    // Without MAP_NORESERVE the kernel refuses what is larger than the machine's memory.
    void* base =
        mmap(nullptr, size > 0 ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? nullptr : ggml_backend_cpu_buffer_from_ptr(base, size);
}

size_t alignment(ggml_backend_buffer_type_t) { return 64; }
bool is_host(ggml_backend_buffer_type_t) { return true; }

}  // namespace

ggml_backend_buffer_type_t unbacked_buffer_type() {
    static ggml_backend_buffer_type type = {{name, alloc, alignment, nullptr, nullptr, is_host},
                                            ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU),
                                            nullptr};
    return &type;
}

}  // namespace linkcpp::maker
