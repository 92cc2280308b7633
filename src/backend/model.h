#pragma once
// A model whose expert tensors lie in one of our buffers: the hand-over from ggml's graph to dispatch and back. One per
// buffer, because a main and a draft model have tensors of the same names. Filled by the loader; compute() may be called
// from several contexts' threads at once.

#include "backend/admission.h"
#include "backend/config.h"
#include "backend/region.h"
#include "backend/runtime.h"
#include "backend/swarm_link.h"
#include "dispatch/dispatcher.h"
#include "moe/expert_weights.h"

namespace linkcpp::backend {

class Model {
  public:
    Model() = default;
    ~Model();

    /// The loader's calls: a tensor of this buffer, and its bytes.
    void tensor_loaded(const ggml_tensor* tensor, ByteSpan data);

    /// Computes a region and writes its output tensor. Errors: unavailable, naming layer and experts; exhausted.
    Status compute(const Region& region);
    /// Computes nodes [begin, end) of a graph here, on a copy of the weights in the buffer type of a stock run.
    Status compute_locally(const ggml_cgraph* graph, int begin, int end);

    /// Totals of this model's dispatcher so far.
    Totals totals() const;

  private:
    void prepare();
    /// What makes every decode of this model wrong, or impossible as configured.
    Status check_configuration() const;
    void await_workers();
    Status compute_missing(const dispatch::ExpertJob& job, const moe::Program& program, dispatch::JobResult& result,
                           uint32_t& n_local);
    Result<std::shared_ptr<moe::GgmlDevice>> local_device();
    void make_local_experts(const std::shared_ptr<moe::GgmlDevice>& device);
    Result<const moe::LayerWeights*> whole_layer(int layer);

    dispatch::JobResult take_memory();
    void keep_memory(dispatch::JobResult result);

    static constexpr size_t max_kept_bytes = 8u << 20;

    std::once_flag prepared_;
    ModelSource source_;
    ModelSettings settings_;  // chosen by the file's name
    std::string name_;        // the file's, for statistics
    Status unusable_;         // not ok: no decode may go on with this model
    bool fallback_ = false;   // local experts may be computed
    std::shared_ptr<net::TcpNetwork> network_;
    std::unique_ptr<LocalExperts> local_;    // for fallback
    std::unique_ptr<LocalExperts> checked_;  // for canaries and audits
    std::unique_ptr<Admission> admission_;
    std::unique_ptr<dispatch::Dispatcher> dispatcher_;
    std::unique_ptr<SwarmLink> swarm_;  // last: it uses the dispatcher

    std::mutex memory_mutex_;
    dispatch::JobResult memory_;  // protected by memory_mutex_; of the last job, for the next one: fresh pages are slow

    std::mutex device_mutex_;
    std::shared_ptr<moe::GgmlDevice> device_;         // protected by device_mutex_
    std::map<int, moe::ExpertWeights> whole_layers_;  // protected by device_mutex_; for regions that do not fit
};

}  // namespace linkcpp::backend
