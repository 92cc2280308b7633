#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <random>

namespace linkcpp::maker {

namespace {

struct Distribution {
    float mean, deviation;
};

/// Matrices keep the size of what goes through them (deviation 1/sqrt(n_in)); norms and scales are near one.
Distribution distribution(const TensorPlan& plan) {
    const auto has = [&](const char* part) { return plan.name.find(part) != std::string::npos; };
    const float fan_in = 1.0f / std::sqrt(static_cast<float>(plan.ne[0]));
    if (has("ssm_a")) return {-0.5f, 0.1f};  // a decay: has to be negative
    if (plan.name.ends_with(".bias")) return {0.0f, 0.1f};
    if (has("norm") || has("scale") || plan.ne[1] == 1) return {1.0f, 0.1f};
    if (has("token_embd")) return {0.0f, 1.0f};
    if (has("ffn_gate_inp")) return {0.0f, 2.0f * fan_in};  // a router that has preferences
    return {0.0f, fan_in};
}

/// FNV-1a: the same name gives the same numbers everywhere.
uint64_t hash(const std::string& text) {
    uint64_t value = 0xcbf29ce484222325ull;
    for (const char c : text)
        value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
    return value;
}

constexpr int64_t pool_values = 1 << 19;
constexpr size_t piece_bytes = 4 << 20;

}  // namespace

Result<const WeightStream::Pool*> WeightStream::pool(ggml_type type, int64_t unit, float mean, float deviation) {
    const auto key = std::make_tuple(type, unit, mean, deviation);
    if (const auto known = pools_.find(key); known != pools_.end()) return &known->second;

    Pool pool;
    pool.n_units = static_cast<size_t>(pool_values / unit);
    pool.unit_bytes = ggml_row_size(type, unit);
    std::vector<float> values(pool.n_units * static_cast<size_t>(unit));
    std::mt19937_64 random(seed_ ^ 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(type + 1));
    std::normal_distribution<float> normal(mean, deviation);
    for (float& value : values)
        value = normal(random);
    pool.bytes.resize(pool.n_units * pool.unit_bytes);
    const ggml_type_traits* traits = ggml_get_type_traits(type);
    if (type == GGML_TYPE_F32) {
        std::memcpy(pool.bytes.data(), values.data(), pool.bytes.size());
    } else if (traits->from_float_ref != nullptr || ggml_quantize_requires_imatrix(type)) {
        const std::vector<float> importance(static_cast<size_t>(unit), 1.0f);
        ggml_quantize_chunk(type, values.data(), pool.bytes.data(), 0, static_cast<int64_t>(pool.n_units), unit,
                            importance.data());
    } else {
        return {Code::unsupported, fmt::format("ggml does not make weights of type {}", ggml_type_name(type))};
    }
    return &pools_.emplace(key, std::move(pool)).first->second;
}

Status WeightStream::make(const TensorPlan& plan, const std::function<Status(ByteSpan)>& write) {
    const int64_t row = plan.ne[0], block = ggml_blck_size(plan.type);
    int64_t unit = block;
    for (const int64_t wanted : {256, 32}) {
        if (wanted % block == 0 && row % wanted == 0) {
            unit = wanted;
            break;
        }
    }
    const auto [mean, deviation] = distribution(plan);
    const auto pool = this->pool(plan.type, unit, mean, deviation);
    if (!pool.ok()) return pool.status();
    const Pool& source = **pool;

    std::mt19937_64 random(seed_ ^ hash(plan.name));
    uint64_t n_units = static_cast<uint64_t>(row / unit);
    for (int dim = 1; dim < GGML_MAX_DIMS; ++dim)
        n_units *= static_cast<uint64_t>(plan.ne[static_cast<size_t>(dim)]);
    const size_t units_per_piece = std::max<size_t>(1, piece_bytes / source.unit_bytes);
    Bytes piece;
    while (n_units > 0) {
        const size_t n = static_cast<size_t>(std::min<uint64_t>(n_units, units_per_piece));
        piece.resize(n * source.unit_bytes);
        for (size_t i = 0; i < n; ++i)
            std::memcpy(piece.data() + i * source.unit_bytes,
                        source.bytes.data() + (random() % source.n_units) * source.unit_bytes, source.unit_bytes);
        LINKCPP_TRY(write(piece));
        n_units -= n;
    }
    return {};
}

}  // namespace linkcpp::maker
