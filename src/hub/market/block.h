#pragma once
// What is held, wanted and leased: the experts [c, d) of the layers [a, b) of a model. Layers without experts may lie within
// and contribute nothing. Plain values.

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace linkcpp::hub::market {

struct Range {
    uint32_t begin = 0, end = 0;  ///< half-open
    auto operator<=>(const Range&) const = default;
    uint32_t size() const { return end - begin; }
    bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

struct Block {
    Range layers, experts;
    auto operator<=>(const Block&) const = default;
    bool overlaps(const Block& other) const { return layers.overlaps(other.layers) && experts.overlaps(other.experts); }
};

/// A block of a model, by the model's name.
struct Holding {
    std::string model;
    Block block;
    auto operator<=>(const Holding&) const = default;
};

struct LayerSpec {
    uint32_t n_expert = 0;      ///< 0: a layer without experts
    uint64_t expert_bytes = 0;  ///< of one expert, all its tensors
};

struct ModelSpec {
    std::string name;
    std::vector<LayerSpec> layers;  ///< by the tensor table
    uint32_t target = 2;            ///< replicas wanted of every expert
};

}  // namespace linkcpp::hub::market
