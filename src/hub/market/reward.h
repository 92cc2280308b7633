#pragma once
// What a row is worth. The one place that decides it; docs/MARKET.md explains it to people.

#include <cstdint>

namespace linkcpp::hub::market {

struct RewardInputs {
    double scarcity = 0;         ///< 0 (as many replicas as wanted, or more) to 1 (none)
    uint64_t expert_bytes = 0;   ///< what one expert takes of the holder's memory
    double rows_per_minute = 0;  ///< that the model was asked for lately, all its experts together
};

/// Credits per 1000 rows: base x rarity x size x demand, rounded.
///   base   = 1000
///   rarity = 1 + 3 scarcity                                  1 .. 4
///   size   = 1 + expert_bytes / 4 MiB, at most 9             1 .. 9
///   demand = 1 + log2(1 + rows_per_minute / 1000) / 8, at most 3
uint64_t reward_per_1000_rows(const RewardInputs& inputs);

/// Credits for `rows` at a reward, rounded down: whole credits only. False when they do not fit 63 bits.
bool credits_for(uint64_t rows, uint64_t reward, int64_t& credits);

}  // namespace linkcpp::hub::market
