#include "backend/local_experts.h"

#include <algorithm>
#include <map>

namespace linkcpp::backend {

constexpr int experts_per_unit = 2;

uint64_t LocalExperts::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

Result<std::shared_ptr<moe::Engine>> LocalExperts::unit(int layer, int index) {
    const std::lock_guard lock(mutex_);
    for (auto it = units_.begin(); it != units_.end(); ++it) {
        if (it->layer == layer && it->index == index) {
            units_.splice(units_.begin(), units_, it);
            return units_.front().engine;
        }
    }
    const int n_expert = source_.n_expert(layer);
    const int first = index * experts_per_unit, end = std::min(first + experts_per_unit, n_expert);
    std::vector<moe::ExpertTensor> tensors;
    for (const moe::ExpertTensor* whole : source_.tensors(layer)) {
        moe::ExpertTensor part = *whole;
        const size_t offset = static_cast<size_t>(first) * whole->slab_bytes;
        const size_t size = static_cast<size_t>(end - first) * whole->slab_bytes;
        if (first >= end || offset + size > whole->data.size())
            return {Code::not_found, whole->name.str() + " does not have these experts"};
        part.data = whole->data.subspan(offset, size);
        part.digests.clear();
        tensors.push_back(std::move(part));
    }
    auto engine = moe::Engine::load(device_, tensors);
    // They were copied; mapped pages of experts must not pile up here.
    for (const moe::ExpertTensor& tensor : tensors)
        moe::MappedFile::drop_pages(tensor.data);
    if (!engine.ok()) return engine.status();
    units_.push_front({layer, index, std::move(*engine)});
    bytes_ += units_.front().engine->bytes();
    while (units_.size() > 1 && bytes_ > cache_bytes_) {
        bytes_ -= units_.back().engine->bytes();
        units_.pop_back();
    }
    return units_.front().engine;
}

Status LocalExperts::compute(int layer, const moe::Program& program, std::span<const float> x,
                             std::span<const uint32_t> x_row, std::span<const uint32_t> expert, std::span<float> y) {
    if (expert.empty()) return {};
    const size_t n_out = y.size() / expert.size();
    std::map<int, std::vector<uint32_t>> pairs_by_unit;
    for (uint32_t p = 0; p < expert.size(); ++p)
        pairs_by_unit[static_cast<int>(expert[p]) / experts_per_unit].push_back(p);
    std::vector<uint32_t> unit_row, unit_expert;
    std::vector<float> unit_y;
    for (const auto& [index, pairs] : pairs_by_unit) {
        auto engine = unit(layer, index);
        if (!engine.ok()) return engine.status();
        unit_row.clear();
        unit_expert.clear();
        for (uint32_t p : pairs) {
            unit_row.push_back(x_row[p]);
            unit_expert.push_back(expert[p] % experts_per_unit);
        }
        unit_y.resize(pairs.size() * n_out);
        LINKCPP_TRY((*engine)->compute(layer, program, x, unit_row, unit_expert, unit_y));
        for (size_t i = 0; i < pairs.size(); ++i)
            std::copy_n(unit_y.data() + i * n_out, n_out, y.data() + pairs[i] * n_out);
    }
    return {};
}

}  // namespace linkcpp::backend
