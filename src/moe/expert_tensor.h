#pragma once
// From an entry of a GGUF tensor table to an expert tensor and back: which dimension counts the experts, and how large
// one slab is. Pure functions.

#include "moe/gguf.h"
#include "moe/slice_file.h"

#include <optional>

namespace linkcpp::moe {

/// Caps on numbers that come from files and become sizes of tables. Far beyond any model.
constexpr int max_layers = 1 << 16;
constexpr int max_experts = 1 << 16;

/// `entry` as an expert tensor without data and digests; nullopt when it is none. Errors: corrupt (the name of an expert
/// tensor, but not the shape of one), unsupported (a type whose slabs do not begin at bytes).
Result<std::optional<ExpertTensor>> expert_tensor(const GgufTensor& entry);

/// The dimensions of a tensor of `n_experts` such slabs: the inverse of expert_tensor().
std::vector<int64_t> tensor_dimensions(const ExpertTensor& tensor, int n_experts);

/// 64 hexadecimal digits, or nullopt.
std::optional<Digest> parse_digest(std::string_view hex);

}  // namespace linkcpp::moe
