#pragma once
// The experts that the backbone computes itself: fallback when nobody holds them, and the expected side of canaries. A
// bounded cache of experts copied out of the model file into the buffer type that a stock run uses, two neighbouring
// experts at a time (one alone would not be repacked as a stock run's are). Thread-safe.

#include "backend/model_source.h"
#include "moe/engine.h"

#include <list>
#include <mutex>

namespace linkcpp::backend {

class LocalExperts {
  public:
    /// `source` must have weights and outlive this object.
    LocalExperts(const ModelSource& source, std::shared_ptr<moe::Device> device, uint64_t cache_bytes)
        : source_(source), device_(std::move(device)), cache_bytes_(cache_bytes) {}

    /// y[:, p] = program(x[:, x_row[p]]) with the weights of `expert[p]`, counted in the whole layer. Shapes as
    /// moe::Engine::compute.
    Status compute(int layer, const moe::Program& program, std::span<const float> x, std::span<const uint32_t> x_row,
                   std::span<const uint32_t> expert, std::span<float> y);

    uint64_t bytes() const;

  private:
    struct Unit {
        int layer = 0, index = 0;  ///< experts [2 * index, 2 * index + 2)
        std::shared_ptr<moe::Engine> engine;
    };
    Result<std::shared_ptr<moe::Engine>> unit(int layer, int index);

    const ModelSource& source_;
    std::shared_ptr<moe::Device> device_;
    const uint64_t cache_bytes_;
    mutable std::mutex mutex_;
    std::list<Unit> units_;  // protected by mutex_; most recently used first
    uint64_t bytes_ = 0;     // protected by mutex_
};

}  // namespace linkcpp::backend
