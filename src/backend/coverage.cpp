#include "backend/coverage.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::backend {

namespace {

/// Neighbouring layers of which the same is said.
struct LayerRange {
    int begin = 0, end = 0;
    std::string text;
};

/// `describe(layer, experts)`; layers of which nothing is said ("") are left out.
template <typename Describe>
std::vector<LayerRange> by_layers(const std::map<int, int>& layers, const ModelSettings& settings,
                                  const Describe& describe) {
    std::vector<LayerRange> ranges;
    for (const auto& [layer, n_expert] : layers) {
        if (!settings.covers(layer)) continue;
        std::string text = describe(layer, n_expert);
        if (text.empty()) continue;
        if (!ranges.empty() && ranges.back().end == layer && ranges.back().text == text)
            ranges.back().end = layer + 1;
        else
            ranges.push_back({layer, layer + 1, std::move(text)});
    }
    return ranges;
}

bool has_layer(const dispatch::HolderInfo& holder, int layer) {
    return layer >= static_cast<int>(holder.layer_begin) && layer < static_cast<int>(holder.layer_end);
}

}  // namespace

std::string missing_experts(const std::map<int, int>& layers, const ModelSettings& settings,
                            const std::vector<dispatch::HolderInfo>& holders) {
    const auto missing = [&](int layer, int n_expert) {
        std::vector<bool> held(static_cast<size_t>(n_expert));
        for (const dispatch::HolderInfo& holder : holders) {
            if (!has_layer(holder, layer)) continue;
            for (uint32_t e = holder.expert_begin; e < std::min(holder.expert_end, static_cast<uint32_t>(n_expert));
                 ++e)
                held[e] = true;
        }
        std::string text;
        for (size_t begin = 0; begin < held.size();) {
            size_t end = begin;
            while (end < held.size() && held[end] == held[begin])
                ++end;
            if (!held[begin] && end - begin == held.size()) return fmt::format("all {} experts", n_expert);
            if (!held[begin]) text += fmt::format("{}{}:{}", text.empty() ? "experts " : ",", begin, end);
            begin = end;
        }
        return text;
    };
    std::string all;
    for (const LayerRange& range : by_layers(layers, settings, missing))
        all += fmt::format("{}layers {}:{} {}", all.empty() ? "" : "; ", range.begin, range.end, range.text);
    return all;
}

std::vector<std::string> describe_holders(const std::map<int, int>& layers, const ModelSettings& settings,
                                          const std::vector<dispatch::HolderInfo>& holders, bool fallback) {
    const auto who = [&](int layer, int) {
        std::string text;
        for (const dispatch::HolderInfo& holder : holders) {
            if (!has_layer(holder, layer)) continue;
            text += fmt::format("{}experts {}:{} at {}", text.empty() ? "" : ", ", holder.expert_begin,
                                holder.expert_end, holder.address);
        }
        if (text.empty()) text = fallback ? "computed here, no worker has them" : "NO HOLDER";
        return text;
    };
    std::vector<std::string> lines;
    for (const LayerRange& range : by_layers(layers, settings, who))
        lines.push_back(fmt::format("layers {}:{}  {}", range.begin, range.end, range.text));
    return lines;
}

}  // namespace linkcpp::backend
