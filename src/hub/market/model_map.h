#pragma once
// The map of one model: for every expert how many nodes hold it, are leaving it, are on their way to it. Counts are kept as
// they change, never recomputed, so that a question costs one pass over the experts whatever the number of nodes.
// Pure; one thread at a time.

#include "base/status.h"
#include "hub/market/block.h"

#include <optional>
#include <vector>

namespace linkcpp::hub::market {

/// What a node can take.
struct Budget {
    uint64_t max_bytes = UINT64_MAX;
    uint64_t max_experts = UINT64_MAX;  ///< counted per layer: 2 layers of 8 experts are 16
};

/// Neighbouring experts of one layer with equally many replicas.
struct Run {
    uint32_t layer = 0;
    Range experts;
    uint32_t replicas = 0;
};

enum class Tally { live, leaving, coming };

class ModelMap {
  public:
    explicit ModelMap(ModelSpec spec);

    const ModelSpec& spec() const { return spec_; }
    /// Errors: invalid_argument (a range that is empty, reversed or beyond the model; a layer with too few experts; no
    /// experts at all).
    Status check(const Block& block) const;
    /// Blocks below were checked.
    void add(const Block& block, Tally tally);
    void remove(const Block& block, Tally tally);

    /// Holders that stay, and nodes on their way.
    uint32_t replicas(uint32_t layer, uint32_t expert) const;
    /// The fewest holders that stay, of any expert of the block; who is only on his way does not count.
    uint32_t fewest_live(const Block& block) const;
    /// The fewest replicas of any expert of the block.
    uint32_t fewest_replicas(const Block& block) const;
    uint64_t bytes(const Block& block) const;
    uint64_t largest_expert_bytes(const Block& block) const;
    double scarcity(uint32_t replicas) const;

    /// All experts of all layers, in order.
    std::vector<Run> runs() const;
    /// The block that somebody should take who has these blocks of the model already: experts with the fewest replicas; of
    /// several such places the one that fills the budget best, then the first. One layer, clipped to the budget; or
    /// several, where a layer's run is less than the budget and the same experts of the next layer are as rare.
    struct Offer {
        Block block;
        uint32_t replicas = 0;
    };
    std::optional<Offer> rarest(const Budget& budget, const std::vector<Block>& taken) const;

  private:
    struct Count {
        uint32_t live = 0, leaving = 0, coming = 0;
        uint32_t replicas() const { return live - leaving + coming; }
        uint32_t& of(Tally tally) { return tally == Tally::live ? live : tally == Tally::leaving ? leaving : coming; }
    };
    template <typename F>
    void each(const Block& block, F&& use) const;
    template <typename F>
    void each_free_run(uint32_t layer, const std::vector<Block>& taken, F&& use) const;
    Block clip(const Run& run, const Budget& budget, const std::vector<Block>& taken) const;
    bool is_level(uint32_t layer, Range experts, uint32_t replicas, const std::vector<Block>& taken) const;

    ModelSpec spec_;
    std::vector<std::vector<Count>> counts_;  // [layer][expert]
};

}  // namespace linkcpp::hub::market
