#include "cmd/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace linkcpp::cmd {

TokenComparison compare_tokens(std::span<const int32_t> reference, std::span<const int32_t> other) {
    TokenComparison result;
    result.total = reference.size();
    const size_t both = std::min(reference.size(), other.size());
    for (size_t i = 0; i < both; ++i) {
        if (reference[i] == other[i]) {
            result.identical += 1;
        } else if (!result.first_difference) {
            result.first_difference = i;
        }
    }
    if (reference.size() != other.size() && !result.first_difference) result.first_difference = both;
    return result;
}

size_t greedy_token(std::span<const float> logits) {
    return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float top2_margin(std::span<const float> logits) {
    float first = -std::numeric_limits<float>::infinity(), second = first;
    for (const float value : logits) {
        if (value > first) {
            second = first;
            first = value;
        } else if (value > second) {
            second = value;
        }
    }
    return first == second ? 0 : first - second;
}

void LogitComparison::add(std::span<const float> reference, std::span<const float> other) {
    positions_ += 1;
    if (reference.size() != other.size()) {
        max_abs_diff_ = std::numeric_limits<double>::infinity();
        cosine_ = std::min(cosine_, 0.0);
        return;
    }
    if (std::memcmp(reference.data(), other.data(), reference.size_bytes()) == 0) {
        positions_identical_ += 1;
        return;
    }
    double product = 0, square_a = 0, square_b = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
        const double a = reference[i], b = other[i];
        // Tokens that a model never produces have -inf on both sides.
        if (reference[i] == other[i] && !std::isfinite(a)) continue;
        if (!std::isfinite(a) || !std::isfinite(b)) {
            if (!(std::isnan(a) && std::isnan(b))) max_abs_diff_ = std::numeric_limits<double>::infinity();
            continue;
        }
        max_abs_diff_ = std::max(max_abs_diff_, std::abs(a - b));
        product += a * b;
        square_a += a * a;
        square_b += b * b;
    }
    const double length = std::sqrt(square_a * square_b);
    cosine_ = std::min(cosine_, length > 0 ? product / length : 0.0);
}

}  // namespace linkcpp::cmd
