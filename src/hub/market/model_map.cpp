#include "hub/market/model_map.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::hub::market {

namespace {

bool is_taken(uint32_t layer, Range experts, const std::vector<Block>& taken) {
    return std::any_of(taken.begin(), taken.end(), [&](const Block& block) {
        return block.overlaps({{layer, layer + 1}, experts});
    });
}

}  // namespace

ModelMap::ModelMap(ModelSpec spec) : spec_(std::move(spec)) {
    for (const LayerSpec& layer : spec_.layers)
        counts_.emplace_back(layer.n_expert);
}

Status ModelMap::check(const Block& block) const {
    const auto [layers, experts] = block;
    if (layers.begin >= layers.end || layers.end > spec_.layers.size()) {
        return {Code::invalid_argument, fmt::format("layers {}:{} are not a range within the {} layers of {}",
                                                    layers.begin, layers.end, spec_.layers.size(), spec_.name)};
    }
    bool any = false;
    for (uint32_t layer = layers.begin; layer < layers.end; ++layer) {
        const uint32_t n_expert = spec_.layers[layer].n_expert;
        if (n_expert == 0) continue;
        any = true;
        if (experts.begin >= experts.end || experts.end > n_expert) {
            return {Code::invalid_argument,
                    fmt::format("experts {}:{} are not a range within the {} experts of layer {} of {}", experts.begin,
                                experts.end, n_expert, layer, spec_.name)};
        }
    }
    if (any) return {};
    return {Code::invalid_argument,
            fmt::format("layers {}:{} of {} have no experts", layers.begin, layers.end, spec_.name)};
}

template <typename F>
void ModelMap::each(const Block& block, F&& use) const {
    for (uint32_t layer = block.layers.begin; layer < block.layers.end; ++layer) {
        if (counts_[layer].empty()) continue;
        for (uint32_t expert = block.experts.begin; expert < block.experts.end; ++expert)
            use(layer, expert);
    }
}

void ModelMap::add(const Block& block, Tally tally) {
    each(block, [&](uint32_t layer, uint32_t expert) { counts_[layer][expert].of(tally) += 1; });
}

void ModelMap::remove(const Block& block, Tally tally) {
    each(block, [&](uint32_t layer, uint32_t expert) { counts_[layer][expert].of(tally) -= 1; });
}

uint32_t ModelMap::replicas(uint32_t layer, uint32_t expert) const { return counts_[layer][expert].replicas(); }

uint32_t ModelMap::fewest_live(const Block& block) const {
    uint32_t fewest = UINT32_MAX;
    each(block, [&](uint32_t layer, uint32_t expert) {
        const Count& count = counts_[layer][expert];
        fewest = std::min(fewest, count.live - count.leaving);
    });
    return fewest;
}

uint32_t ModelMap::fewest_replicas(const Block& block) const {
    uint32_t fewest = UINT32_MAX;
    each(block, [&](uint32_t layer, uint32_t expert) { fewest = std::min(fewest, replicas(layer, expert)); });
    return fewest;
}

uint64_t ModelMap::bytes(const Block& block) const {
    uint64_t bytes = 0;
    for (uint32_t layer = block.layers.begin; layer < block.layers.end; ++layer) {
        if (!counts_[layer].empty()) bytes += block.experts.size() * spec_.layers[layer].expert_bytes;
    }
    return bytes;
}

uint64_t ModelMap::largest_expert_bytes(const Block& block) const {
    uint64_t bytes = 0;
    for (uint32_t layer = block.layers.begin; layer < block.layers.end; ++layer)
        bytes = std::max(bytes, spec_.layers[layer].expert_bytes);
    return bytes;
}

double ModelMap::scarcity(uint32_t replicas) const {
    if (spec_.target == 0) return 0;
    return std::max(0.0, 1 - static_cast<double>(replicas) / spec_.target);
}

std::vector<Run> ModelMap::runs() const {
    std::vector<Run> runs;
    for (uint32_t layer = 0; layer < counts_.size(); ++layer)
        each_free_run(layer, {}, [&](const Run& run) { runs.push_back(run); });
    return runs;
}

template <typename F>
void ModelMap::each_free_run(uint32_t layer, const std::vector<Block>& taken, F&& use) const {
    const std::vector<Count>& counts = counts_[layer];
    const uint32_t n = static_cast<uint32_t>(counts.size());
    for (uint32_t begin = 0; begin < n;) {
        // Where the node has something already, or the number of replicas changes, a run ends.
        uint32_t limit = n;
        const Block* here = nullptr;
        for (const Block& block : taken) {
            if (layer < block.layers.begin || layer >= block.layers.end || block.experts.end <= begin) continue;
            if (block.experts.begin <= begin)
                here = &block;
            else
                limit = std::min(limit, block.experts.begin);
        }
        if (here != nullptr) {
            begin = here->experts.end;
            continue;
        }
        const uint32_t replicas = counts[begin].replicas();
        uint32_t end = begin + 1;
        while (end < limit && counts[end].replicas() == replicas)
            ++end;
        use(Run{layer, {begin, end}, replicas});
        begin = end;
    }
}

bool ModelMap::is_level(uint32_t layer, Range experts, uint32_t replicas, const std::vector<Block>& taken) const {
    const std::vector<Count>& counts = counts_[layer];
    return experts.end <= counts.size() && !is_taken(layer, experts, taken) &&
           std::all_of(counts.begin() + experts.begin, counts.begin() + experts.end,
                       [&](const Count& count) { return count.replicas() == replicas; });
}

Block ModelMap::clip(const Run& run, const Budget& budget, const std::vector<Block>& taken) const {
    const uint64_t expert_bytes = std::max<uint64_t>(spec_.layers[run.layer].expert_bytes, 1);
    const uint64_t room = std::min(budget.max_experts, budget.max_bytes / expert_bytes);
    Block block{{run.layer, run.layer + 1}, run.experts};
    if (room < run.experts.size()) {
        block.experts.end = block.experts.begin + static_cast<uint32_t>(room);
        return block;
    }
    uint64_t bytes = run.experts.size() * expert_bytes, experts = run.experts.size();
    for (uint32_t layer = run.layer + 1; layer < counts_.size(); ++layer) {
        if (counts_[layer].empty()) continue;
        bytes += run.experts.size() * spec_.layers[layer].expert_bytes;
        experts += run.experts.size();
        if (bytes > budget.max_bytes || experts > budget.max_experts) break;
        if (!is_level(layer, run.experts, run.replicas, taken)) break;
        block.layers.end = layer + 1;
    }
    return block;
}

std::optional<ModelMap::Offer> ModelMap::rarest(const Budget& budget, const std::vector<Block>& taken) const {
    std::optional<Offer> best;
    uint64_t best_bytes = 0, best_experts = 0;
    bool full = false;  // the best fills the budget, up to less than an expert
    for (uint32_t layer = 0; layer < counts_.size(); ++layer) {
        const uint64_t expert_bytes = std::max<uint64_t>(spec_.layers[layer].expert_bytes, 1);
        if (budget.max_experts == 0 || expert_bytes > budget.max_bytes) continue;
        each_free_run(layer, taken, [&](const Run& run) {
            if (best && (run.replicas > best->replicas || (run.replicas == best->replicas && full))) return;
            const Block block = clip(run, budget, taken);
            const uint64_t block_bytes = bytes(block), block_experts = block_bytes / expert_bytes;
            if (best && run.replicas == best->replicas && block_bytes <= best_bytes) return;
            best = Offer{block, run.replicas};
            best_bytes = block_bytes;
            best_experts = block_experts;
            full = budget.max_bytes - best_bytes < expert_bytes || best_experts >= budget.max_experts;
        });
    }
    return best;
}

}  // namespace linkcpp::hub::market
