#include "backend/device.h"

#include "backend/buffer.h"
#include "base/log.h"

#include <cstring>

namespace linkcpp::backend {

namespace {

// ACCEL, as BLAS is: a context then adds our backend by itself, and the loader tries our buffer type before the CPU's.
enum ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; }
const char* device_name(ggml_backend_dev_t) { return "linkcpp"; }
const char* device_description(ggml_backend_dev_t) { return "routed experts on other devices"; }
void device_memory(ggml_backend_dev_t, size_t* free, size_t* total) { *free = *total = 0; }

ggml_backend_buffer_type_t visible_buffer_type(ggml_backend_dev_t) { return expert_buffer_type(); }
ggml_backend_buffer_type_t hidden_buffer_type(ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); }

void device_props(ggml_backend_dev_t device, ggml_backend_dev_props* props) {
    std::memset(props, 0, sizeof(*props));
    props->name = device_name(device);
    props->description = device_description(device);
    props->type = device_type(device);
}

ggml_backend_t init_backend(ggml_backend_dev_t, const char*) {
    Runtime& runtime = Runtime::get();
    static std::once_flag warned;
    if (!runtime.expert_tensors_seen) {
        std::call_once(warned, [] {
            log_warning(
                "nothing goes to the workers: no expert tensor of this model was put into the buffer type 'linkcpp' "
                "(a dense model? experts offloaded to a GPU? then add -ot '_exps=linkcpp')");
        });
    }
    return new_backend();
}

/// Layers that no model's settings let go remote keep their weights where a stock run has them. The loader asks before
/// anything tells which model this is; a layer that another model's settings let through is computed here (model.cpp).
bool wants(const ggml_tensor* weight, moe::Role role) {
    const auto name = moe::ExpertTensorName::parse(weight->name);
    return name && name->kind.role == role && Runtime::get().config().any_covers(name->layer);
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor* op) {
    switch (op->op) {
        case GGML_OP_NONE: return is_ours(op);  // a weight of ours: the scheduler asks where it lies
        case GGML_OP_MUL_MAT_ID:
            if (is_kept(op->src[0]) && std::strstr(op->src[0]->name, ".lora_") != nullptr) return true;
            if (!is_ours(op->src[0]) || !wants(op->src[0], moe::Role::weight)) return false;
            Runtime::get().expert_tensors_seen = true;
            return true;
        case GGML_OP_ADD_ID:
            if (is_ours(op->src[1])) return wants(op->src[1], moe::Role::bias);
            return continues_region(op);
        default: return continues_region(op);
    }
}

bool supports_buffer_type(ggml_backend_dev_t, ggml_backend_buffer_type_t type) {
    return type == expert_buffer_type() || type == ggml_backend_cpu_buffer_type();
}

ggml_backend_device_i device_interface(bool visible) {
    ggml_backend_device_i interface {};
    interface.get_name = device_name;
    interface.get_description = device_description;
    interface.get_memory = device_memory;
    interface.get_type = device_type;
    interface.get_props = device_props;
    interface.init_backend = init_backend;
    interface.get_buffer_type = visible ? visible_buffer_type : hidden_buffer_type;
    interface.supports_op = supports_op;
    interface.supports_buft = supports_buffer_type;
    return interface;
}

void set_n_threads(ggml_backend_t, int n_threads) { Runtime::get().set_n_threads(n_threads); }

const char* reg_name(ggml_backend_reg_t) { return "linkcpp"; }
size_t reg_device_count(ggml_backend_reg_t) { return 1; }
ggml_backend_dev_t reg_device(ggml_backend_reg_t, size_t) { return visible_device(); }
void* reg_proc_address(ggml_backend_reg_t, const char* name) {
    return std::strcmp(name, "ggml_backend_set_n_threads") == 0 ? reinterpret_cast<void*>(set_n_threads) : nullptr;
}

}  // namespace

ggml_backend_reg_t registration() {
    static ggml_backend_reg reg = {
        GGML_BACKEND_API_VERSION, {reg_name, reg_device_count, reg_device, reg_proc_address}, nullptr};
    return &reg;
}

ggml_backend_dev_t visible_device() {
    static ggml_backend_device device = {device_interface(true), registration(), nullptr};
    return &device;
}

ggml_backend_dev_t hidden_device() {
    static ggml_backend_device device = {device_interface(false), registration(), nullptr};
    return &device;
}

}  // namespace linkcpp::backend
