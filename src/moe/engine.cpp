#include "moe/engine.h"

#include "moe/expert_graph.h"

#include <algorithm>
#include <fmt/format.h>
#include <list>
#include <optional>
#include <utility>

namespace linkcpp::moe {

namespace {

struct GraphKey {
    int layer;
    Bytes program;
    RowShape rows;
    auto operator<=>(const GraphKey&) const = default;
};

/// Recently used graphs. Decoding asks for the same few sizes again and again. Each holds its intermediate values, so the
/// cache is bounded in bytes too.
class GraphCache {
  public:
    ExpertGraph* find(const GraphKey& key) {
        for (auto it = entries_.begin(); it != entries_.end(); ++it) {
            if (it->first == key) {
                entries_.splice(entries_.begin(), entries_, it);
                return &entries_.front().second;
            }
        }
        return nullptr;
    }
    ExpertGraph* insert(GraphKey key, ExpertGraph graph) {
        bytes_ += graph.bytes();
        entries_.emplace_front(std::move(key), std::move(graph));
        while (entries_.size() > 1 && (entries_.size() > max_entries || bytes_ > max_bytes)) {
            bytes_ -= entries_.back().second.bytes();
            entries_.pop_back();
        }
        return &entries_.front().second;
    }

  private:
    static constexpr size_t max_entries = 64;
    static constexpr uint64_t max_bytes = 64u << 20;
    std::list<std::pair<GraphKey, ExpertGraph>> entries_;
    uint64_t bytes_ = 0;
};

/// How the pairs lie: `used` pairs of different experts per activation row, in order? Then the rows go to ggml as they
/// are. Anything else is flattened to one activation row per pair. Both give the same bits; the first copies and
/// quantises less. "Different experts" is not for speed: ggml's repacked kernels have room for an expert once per row,
/// and write beyond it when it comes twice.
std::optional<RowShape> regular_shape(std::span<const uint32_t> x_row, std::span<const uint32_t> expert, size_t n_x,
                                      size_t n_expert) {
    if (n_x == 0 || x_row.size() % n_x != 0) return std::nullopt;
    const size_t used = x_row.size() / n_x;
    if (used > n_expert) return std::nullopt;
    std::vector<size_t> last_row(n_expert, SIZE_MAX);
    for (size_t p = 0; p < x_row.size(); ++p) {
        const size_t row = p / used;
        if (x_row[p] != row || std::exchange(last_row[expert[p]], row) == row) return std::nullopt;
    }
    return RowShape{static_cast<int64_t>(used), static_cast<int64_t>(n_x)};
}

class GgmlEngine final : public Engine {
  public:
    GgmlEngine(std::shared_ptr<GgmlDevice> device, ExpertWeights weights)
        : device_(std::move(device)), weights_(std::move(weights)) {}

    std::vector<int> layers() const override {
        std::vector<int> layers;
        for (const auto& [layer, weights] : weights_.layers())
            layers.push_back(layer);
        return layers;
    }
    LayerShapes shapes(int layer) const override { return weights_.shapes(layer); }
    int n_expert() const override { return weights_.n_expert(); }
    uint64_t bytes() const override { return weights_.bytes(); }

    Status compute_rows(int layer, const Program& program, std::span<const float> x, std::span<const uint32_t> x_row,
                        std::span<const uint32_t> expert, const TakeRows& take) override;

  private:
    /// Pairs of a decode step or a few: the same numbers come again and again.
    static constexpr size_t max_cached_pairs = 128;
    static constexpr uint64_t max_large_bytes = 256u << 20;

    /// Builds its graph anew, in memory that all such graphs share: fresh pages cost more than a graph.
    Status compute_many(const LayerWeights& weights, const Program& program, ProgramShape widths, RowShape shape,
                        const RowInputs& inputs, const TakeRows& take);

    std::shared_ptr<GgmlDevice> device_;
    ExpertWeights weights_;
    // State below is protected by device_->turn().
    GraphCache graphs_;
    ggml_gallocr_ptr large_;
    std::vector<int32_t> ids_;
};

Status GgmlEngine::compute_rows(int layer, const Program& program, std::span<const float> x,
                                std::span<const uint32_t> x_row, std::span<const uint32_t> expert,
                                const TakeRows& take) {
    const auto weights = weights_.layers().find(layer);
    if (weights == weights_.layers().end()) return {Code::not_found, fmt::format("layer {} is not here", layer)};
    const auto widths = check_program(program, shapes(layer));
    if (!widths.ok()) return widths.status();
    const auto n_in = static_cast<size_t>(widths->n_in);
    if (x_row.empty() || x_row.size() != expert.size() || x.size() % n_in != 0) {
        return {Code::invalid_argument, fmt::format("{} pairs, {} experts and {} input values do not fit rows of {}",
                                                    x_row.size(), expert.size(), x.size(), n_in)};
    }
    const size_t n_x = x.size() / n_in;
    for (size_t p = 0; p < x_row.size(); ++p) {
        if (x_row[p] >= n_x || expert[p] >= static_cast<uint32_t>(n_expert())) {
            return {Code::invalid_argument,
                    fmt::format("pair {}: row {} of {}, expert {} of {}", p, x_row[p], n_x, expert[p], n_expert())};
        }
    }

    const std::lock_guard turn(device_->turn());
    auto shape = regular_shape(x_row, expert, n_x, static_cast<size_t>(n_expert()));
    ids_.assign(expert.begin(), expert.end());
    RowInputs inputs{x, {}, ids_};
    if (!shape) {
        shape = RowShape{1, static_cast<int64_t>(x_row.size())};
        inputs.x_row = x_row;
    }
    if (x_row.size() > max_cached_pairs) return compute_many(weights->second, program, *widths, *shape, inputs, take);

    GraphKey key{layer, encode_program(program), *shape};
    ExpertGraph* graph = graphs_.find(key);
    if (graph == nullptr) {
        auto built = ExpertGraph::build(*device_, weights->second, program, *widths, *shape);
        if (!built.ok()) return built.status();
        graph = graphs_.insert(std::move(key), std::move(*built));
    }
    return graph->run(inputs, take);
}

Status GgmlEngine::compute_many(const LayerWeights& weights, const Program& program, ProgramShape widths,
                                RowShape shape, const RowInputs& inputs, const TakeRows& take) {
    if (large_ == nullptr) large_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(device_->backend())));
    auto graph = ExpertGraph::build(*device_, weights, program, widths, shape, large_.get());
    if (!graph.ok()) {
        large_.reset();  // after a failure it believes to have memory that it has not
        return graph.status();
    }
    Status status = graph->run(inputs, take);
    if (ggml_gallocr_get_buffer_size(large_.get(), 0) > max_large_bytes) large_.reset();
    return status;
}

}  // namespace

uint64_t bytes_to_compute(const ProgramShape& shape, std::span<const uint32_t> x_row, std::span<const uint32_t> expert,
                          size_t n_x, size_t n_expert) {
    const size_t n_rows = regular_shape(x_row, expert, n_x, n_expert) ? n_x : x_row.size();
    return (n_rows * static_cast<uint64_t>(shape.n_in) + x_row.size() * static_cast<uint64_t>(shape.n_live)) *
           sizeof(float);
}

Status Engine::compute(int layer, const Program& program, std::span<const float> x, std::span<const uint32_t> x_row,
                       std::span<const uint32_t> expert, std::span<float> y) {
    Status fits;
    const auto copy = [&](std::span<const float> rows) {
        if (rows.size() == y.size()) {
            std::copy(rows.begin(), rows.end(), y.begin());
        } else {
            fits = {Code::invalid_argument, fmt::format("{} values do not fit into {}", rows.size(), y.size())};
        }
    };
    LINKCPP_TRY(compute_rows(layer, program, x, x_row, expert, copy));
    return fits;
}

Result<std::unique_ptr<Engine>> Engine::load(std::shared_ptr<Device> device, const std::vector<ExpertTensor>& tensors,
                                             const Progress& progress, const ReadSlab& read) {
    auto ggml_device = std::static_pointer_cast<GgmlDevice>(std::move(device));
    auto weights = ExpertWeights::load(*ggml_device, tensors, progress, read);
    if (!weights.ok()) return weights.status();
    return std::unique_ptr<Engine>(std::make_unique<GgmlEngine>(std::move(ggml_device), std::move(*weights)));
}

Result<uint64_t> Engine::bytes_needed(Device& device, const std::vector<ExpertTensor>& tensors) {
    return ExpertWeights::bytes_needed(static_cast<GgmlDevice&>(device), tensors);
}

}  // namespace linkcpp::moe
