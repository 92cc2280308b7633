#pragma once
// Metadata keys of a slice file; docs/SLICES.md is their description. Numbers are u32, digests 64 hexadecimal digits.

#include <cstdint>
#include <string>

namespace linkcpp::moe::slice_key {

constexpr uint32_t current_version = 1;

constexpr const char* version = "linkcpp.slice.version";
constexpr const char* layer_begin = "linkcpp.slice.layer_begin";
constexpr const char* layer_end = "linkcpp.slice.layer_end";
constexpr const char* expert_begin = "linkcpp.slice.expert_begin";
constexpr const char* expert_end = "linkcpp.slice.expert_end";
constexpr const char* digest = "linkcpp.slice.digest";
constexpr const char* n_expert = "linkcpp.model.n_expert";
constexpr const char* n_expert_used = "linkcpp.model.n_expert_used";
constexpr const char* n_embd = "linkcpp.model.n_embd";
constexpr const char* fingerprint = "linkcpp.model.fingerprint";

/// Array of strings: one digest per slab of the tensor.
inline std::string digests(const std::string& tensor_name) { return "linkcpp.digests." + tensor_name; }

}  // namespace linkcpp::moe::slice_key
