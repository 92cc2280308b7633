#pragma once
// How far rows are from what they should be, in the measure that admission and audits use: the squared error of a row over
// its squared size (NMSE). Pure functions.

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

namespace linkcpp::numerics {

/// Rows of one program on one layer, as this machine computes them and as a worker does.
struct Rows {
    size_t n_out = 0;
    std::vector<uint32_t> token, expert;  ///< [n_rows]
    std::vector<float> here, there;       ///< [n_out, n_rows]
};

double nmse(std::span<const float> expected, std::span<const float> got);

/// "rows", "identical" (bit by bit), "nmse_mean", "nmse_min", "nmse_max"; and the smallest error that rows of this machine would have
/// if they were mistaken for each other: "wrong_expert_min" (same token), "wrong_token_min" (same expert).
nlohmann::ordered_json describe(const Rows& rows);

}  // namespace linkcpp::numerics
