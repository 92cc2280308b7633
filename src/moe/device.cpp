#include "moe/device.h"

#include "base/log.h"
#include "base/threads.h"

#include <algorithm>
#include <cstdio>
#include <thread>

namespace linkcpp::moe {

namespace {

bool is_cpu(ggml_backend_dev_t device) { return ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU; }

template <typename Function>
Function* proc_address(ggml_backend_reg_t reg, const char* name) {
    return reinterpret_cast<Function*>(ggml_backend_reg_get_proc_address(reg, name));
}

Result<ggml_backend_dev_t> find_device(const std::string& name) {
    load_ggml_backends();
    ggml_backend_dev_t device =
        name.empty() ? ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) : ggml_backend_dev_by_name(name.c_str());
    if (device != nullptr) return device;
    std::string known;
    for (const DeviceInfo& info : list_devices())
        known += (known.empty() ? "" : ", ") + info.name;
    if (known.empty()) {
        return {Code::not_found,
                "no ggml backend could be loaded: the backend modules (libggml-cpu*.so) must lie beside the program"};
    }
    return {Code::not_found, "there is no device '" + name + "'; present: " + known};
}

}  // namespace

void load_ggml_backends() {
    static std::once_flag once;
    std::call_once(once, [] {
        // A host program (llama.cpp with our plugin) has loaded them already.
        if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) ggml_backend_load_all();
    });
}

void silence_ggml() {
    ggml_log_set(
        [](ggml_log_level level, const char* text, void*) {
            if (level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
        },
        nullptr);
}

std::vector<DeviceInfo> list_devices() {
    load_ggml_backends();
    std::vector<DeviceInfo> devices;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        size_t free = 0, total = 0;
        ggml_backend_dev_memory(device, &free, &total);
        devices.push_back({ggml_backend_dev_name(device), ggml_backend_dev_description(device), free, total});
    }
    return devices;
}

std::string numeric_class_of(ggml_backend_dev_t device) {
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    std::vector<std::string> features;
    if (auto* get_features =
            proc_address<ggml_backend_feature*(ggml_backend_reg_t)>(reg, "ggml_backend_get_features")) {
        for (ggml_backend_feature* feature = get_features(reg); feature->name != nullptr; ++feature) {
            const std::string value = feature->value;
            features.push_back(value == "1" ? feature->name : feature->name + ("=" + value));
        }
    }
    std::sort(features.begin(), features.end());
    std::string text = ggml_backend_reg_name(reg);
    // GPUs of one backend differ by model, so the device's own description tells them apart.
    if (!is_cpu(device)) text += std::string("/") + ggml_backend_dev_description(device);
    for (size_t i = 0; i < features.size(); ++i)
        text += (i == 0 ? ":" : ",") + features[i];
    return text;
}

Result<std::string> numeric_class(const std::string& device) {
    auto found = find_device(device);
    if (!found.ok()) return found.status();
    return numeric_class_of(*found);
}

Result<std::shared_ptr<Device>> Device::open(const std::string& name, int n_threads) {
    auto found = find_device(name);
    if (!found.ok()) return found.status();
    auto created = GgmlDevice::create(*found, n_threads);
    if (!created.ok()) return created.status();
    return std::shared_ptr<Device>(*created);
}

Result<std::shared_ptr<GgmlDevice>> GgmlDevice::create(ggml_backend_dev_t device, int n_threads) {
    std::shared_ptr<GgmlDevice> created(new GgmlDevice);
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    created->device_ = device;
    created->n_threads_ = n_threads > 0 ? n_threads : static_cast<int>(cores);
    created->numeric_class_ = numeric_class_of(device);
    created->backend_ = ggml_backend_dev_init(device, nullptr);
    if (created->backend_ == nullptr) {
        return {Code::unavailable, std::string("device ") + ggml_backend_dev_name(device) + " cannot be opened"};
    }
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    if (auto* set_n_threads = proc_address<void(ggml_backend_t, int)>(reg, "ggml_backend_set_n_threads")) {
        set_n_threads(created->backend_, created->n_threads_);
    }
    created->threads_ = ThreadPool::create(device, created->n_threads_, ThreadPool::Idle::sleeps);
    if (created->threads_ != nullptr) created->threads_->serve(created->backend_);
    if (is_cpu(device)) {
        using GetExtra = ggml_backend_buffer_type_t*(ggml_backend_dev_t);
        if (auto* get_extra = proc_address<GetExtra>(reg, "ggml_backend_dev_get_extra_bufts")) {
            for (ggml_backend_buffer_type_t* extra = get_extra(device); extra != nullptr && *extra != nullptr;
                 ++extra) {
                created->weight_buffer_types_.push_back(*extra);
            }
        }
    }
    created->weight_buffer_types_.push_back(ggml_backend_dev_buffer_type(device));
    return created;
}

GgmlDevice::~GgmlDevice() {
    if (backend_ != nullptr) ggml_backend_free(backend_);
}

Status GgmlDevice::compute(ggml_cgraph* graph) {
    const StayOnCpu here(threads_ == nullptr ? -1 : threads_->caller_cpu());
    const ggml_status status = ggml_backend_graph_compute(backend_, graph);
    if (status != GGML_STATUS_SUCCESS) return {Code::exhausted, std::string("ggml: ") + ggml_status_to_string(status)};
    return {};
}

}  // namespace linkcpp::moe
