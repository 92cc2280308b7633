#pragma once
// Inside of the room: the ggml side of Device. Other rooms use engine.h.

#include "moe/engine.h"
#include "moe/thread_pool.h"

#include <ggml-backend.h>
#include <mutex>

namespace linkcpp::moe {

/// A ggml backend instance with its thread pool, which sleeps between graphs: on a phone, or beside the backbone, spinning
/// is theft.
class GgmlDevice final : public Device {
  public:
    static Result<std::shared_ptr<GgmlDevice>> create(ggml_backend_dev_t device, int n_threads);
    ~GgmlDevice() override;

    const std::string& numeric_class() const override { return numeric_class_; }
    int n_threads() const override { return n_threads_; }

    /// The buffer types weights may lie in, in the order in which llama.cpp tries them: "extra" (repacking) types first.
    const std::vector<ggml_backend_buffer_type_t>& weight_buffer_types() const { return weight_buffer_types_; }
    ggml_backend_dev_t device() const { return device_; }
    ggml_backend_t backend() const { return backend_; }
    /// Held while a graph runs on this device.
    std::mutex& turn() { return turn_; }
    /// Runs a graph on the calling thread and the pool; in the caller's turn. Errors: exhausted.
    Status compute(ggml_cgraph* graph);

  private:
    GgmlDevice() = default;

    ggml_backend_dev_t device_ = nullptr;
    ggml_backend_t backend_ = nullptr;
    std::shared_ptr<ThreadPool> threads_;
    std::vector<ggml_backend_buffer_type_t> weight_buffer_types_;
    std::string numeric_class_;
    int n_threads_ = 1;
    std::mutex turn_;
};

std::string numeric_class_of(ggml_backend_dev_t device);

}  // namespace linkcpp::moe
