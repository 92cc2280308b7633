#include "differences.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace linkcpp::numerics {

namespace {

std::span<const float> row(const std::vector<float>& values, size_t n_out, size_t index) {
    return {values.data() + index * n_out, n_out};
}

}  // namespace

double nmse(std::span<const float> expected, std::span<const float> got) {
    double error = 0, power = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
        const double difference = static_cast<double>(got[i]) - expected[i];
        error += difference * difference;
        power += static_cast<double>(expected[i]) * expected[i];
    }
    return power > 0 ? error / power : error;
}

nlohmann::ordered_json describe(const Rows& rows) {
    const size_t n = rows.token.size();
    size_t identical = 0;
    double sum = 0, largest = 0, smallest = std::numeric_limits<double>::infinity();
    double wrong_expert = smallest, wrong_token = smallest;
    for (size_t i = 0; i < n; ++i) {
        const auto here = row(rows.here, rows.n_out, i), there = row(rows.there, rows.n_out, i);
        identical += std::memcmp(here.data(), there.data(), here.size_bytes()) == 0 ? 1 : 0;
        const double error = nmse(here, there);
        sum += error;
        largest = std::max(largest, error);
        smallest = std::min(smallest, error);
        for (size_t j = 0; j < n; ++j) {
            const bool same_token = rows.token[i] == rows.token[j], same_expert = rows.expert[i] == rows.expert[j];
            if (same_token == same_expert) continue;
            double& nearest = same_token ? wrong_expert : wrong_token;
            nearest = std::min(nearest, nmse(here, row(rows.here, rows.n_out, j)));
        }
    }
    return {{"rows", n},
            {"identical", identical},
            {"nmse_mean", n > 0 ? sum / static_cast<double>(n) : 0},
            {"nmse_min", smallest},
            {"nmse_max", largest},
            {"wrong_expert_min", wrong_expert},
            {"wrong_token_min", wrong_token}};
}

}  // namespace linkcpp::numerics
