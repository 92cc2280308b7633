#include "hub/market/reward.h"

#include <algorithm>
#include <cmath>

namespace linkcpp::hub::market {

uint64_t reward_per_1000_rows(const RewardInputs& inputs) {
    const double rarity = 1 + 3 * std::clamp(inputs.scarcity, 0.0, 1.0);
    const double size = std::min(9.0, 1 + static_cast<double>(inputs.expert_bytes) / (4 << 20));
    const double demand = std::min(3.0, 1 + std::log2(1 + std::max(inputs.rows_per_minute, 0.0) / 1000) / 8);
    return static_cast<uint64_t>(std::llround(1000 * rarity * size * demand));
}

bool credits_for(uint64_t rows, uint64_t reward, int64_t& credits) {
    uint64_t product = 0;
    if (__builtin_mul_overflow(rows, reward, &product) || product / 1000 > static_cast<uint64_t>(INT64_MAX))
        return false;
    credits = static_cast<int64_t>(product / 1000);
    return true;
}

}  // namespace linkcpp::hub::market
