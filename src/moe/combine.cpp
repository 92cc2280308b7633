#include "moe/engine.h"

#include <algorithm>

namespace linkcpp::moe {

// Kept in a file of its own: it is compiled with -ffp-contract=off like everything here, and that is what its exactness
// rests on. The compiler may use vectors of any width, since no element depends on another one.
void weighted_sums(std::span<const float> y, std::span<const float> weight, std::span<const uint32_t> group,
                   size_t n_out, std::span<float> out) {
    for (size_t p = 0; p < group.size(); ++p) {
        const float* row = y.data() + p * n_out;
        float* sum = out.data() + group[p] * n_out;
        const bool first = p == 0 || group[p] != group[p - 1];
        if (weight.empty()) {
            if (first) {
                std::copy_n(row, n_out, sum);
            } else {
                for (size_t i = 0; i < n_out; ++i)
                    sum[i] = sum[i] + row[i];
            }
        } else {
            const float w = weight[p];
            if (first) {
                for (size_t i = 0; i < n_out; ++i)
                    sum[i] = row[i] * w;
            } else {
                for (size_t i = 0; i < n_out; ++i)
                    sum[i] = sum[i] + row[i] * w;
            }
        }
    }
}

}  // namespace linkcpp::moe
