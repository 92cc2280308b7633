#pragma once
// Random weights of any type, scaled so that values keep their size from layer to layer, made as a stream: pools of a few
// megabytes are generated and quantised once, and tensors are drawn from them piece by piece. The same seed and name give
// the same tensor. Not thread-safe.

#include "base/bytes.h"
#include "shapes.h"

#include <functional>
#include <map>
#include <tuple>

namespace linkcpp::maker {

class WeightStream {
  public:
    explicit WeightStream(uint64_t seed) : seed_(seed) {}

    /// Calls `write` with consecutive pieces of the tensor's data. Errors: unsupported (a type that ggml cannot make), and
    /// what `write` returns.
    Status make(const TensorPlan& plan, const std::function<Status(ByteSpan)>& write);

  private:
    struct Pool {
        Bytes bytes;
        size_t unit_bytes = 0, n_units = 0;
    };
    Result<const Pool*> pool(ggml_type type, int64_t unit, float mean, float deviation);

    uint64_t seed_;
    std::map<std::tuple<ggml_type, int64_t, float, float>, Pool> pools_;
};

}  // namespace linkcpp::maker
