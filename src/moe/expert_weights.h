#pragma once
// Inside of the room: expert tensors in a device's memory, each in the buffer type that llama.cpp would choose for it.

#include "moe/device.h"

#include <ggml-cpp.h>
#include <map>

namespace linkcpp::moe {

struct LayerWeights {
    std::array<ggml_tensor*, 4> weight{};  ///< by Matrix: [n_in, n_out, n_expert padded to at least 2]
    std::array<ggml_tensor*, 4> bias{};    ///< [n_out, n_expert padded]
};

class ExpertWeights {
  public:
    static Result<ExpertWeights> load(GgmlDevice& device, const std::vector<ExpertTensor>& tensors,
                                      const Progress& progress, const ReadSlab& read = {});
    static Result<uint64_t> bytes_needed(GgmlDevice& device, const std::vector<ExpertTensor>& tensors);

    const std::map<int, LayerWeights>& layers() const { return layers_; }
    int n_expert() const { return n_expert_; }
    uint64_t bytes() const { return bytes_; }
    LayerShapes shapes(int layer) const;

  private:
    struct Placement {  // tensors of one buffer type, with the slabs they get
        ggml_context_ptr context;
        std::vector<std::pair<ggml_tensor*, const ExpertTensor*>> tensors;
    };
    using Plan = std::map<ggml_backend_buffer_type_t, Placement>;

    Result<Plan> plan(GgmlDevice& device, const std::vector<ExpertTensor>& tensors);
    Status check_biases() const;

    std::map<int, LayerWeights> layers_;
    std::vector<ggml_context_ptr> contexts_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
    int n_expert_ = 0;
    uint64_t bytes_ = 0;
};

}  // namespace linkcpp::moe
