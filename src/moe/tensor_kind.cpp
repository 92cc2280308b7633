#include "moe/tensor_kind.h"

#include <array>
#include <charconv>

namespace linkcpp::moe {

namespace {

constexpr std::array<std::string_view, 4> matrix_names = {"up", "gate", "gate_up", "down"};
constexpr std::array<std::string_view, 4> role_names = {"weight", "bias", "scale", "input_scale"};

bool skip(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

template <size_t N>
std::optional<int> index_of(const std::array<std::string_view, N>& names, std::string_view name) {
    for (size_t i = 0; i < N; ++i) {
        if (names[i] == name) return static_cast<int>(i);
    }
    return std::nullopt;
}

}  // namespace

std::optional<TensorKind> TensorKind::from_code(uint8_t code) {
    if (code >= 16) return std::nullopt;
    return TensorKind{static_cast<Matrix>(code % 4), static_cast<Role>(code / 4)};
}

std::optional<ExpertTensorName> ExpertTensorName::parse(std::string_view name) {
    if (!skip(name, "blk.")) return std::nullopt;
    int layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    if (error != std::errc() || layer < 0) return std::nullopt;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
    if (!skip(name, ".ffn_")) return std::nullopt;
    const size_t dot = name.find('.');
    if (dot == std::string_view::npos) return std::nullopt;
    std::string_view matrix_part = name.substr(0, dot);
    if (!matrix_part.ends_with("_exps")) return std::nullopt;
    matrix_part.remove_suffix(5);
    const auto matrix = index_of(matrix_names, matrix_part);
    const auto role = index_of(role_names, name.substr(dot + 1));
    if (!matrix || !role) return std::nullopt;
    return ExpertTensorName{layer, {static_cast<Matrix>(*matrix), static_cast<Role>(*role)}};
}

std::string kind_name(TensorKind kind) {
    return "ffn_" + std::string(matrix_names[static_cast<size_t>(kind.matrix)]) + "_exps." +
           std::string(role_names[static_cast<size_t>(kind.role)]);
}

std::string ExpertTensorName::str() const { return "blk." + std::to_string(layer) + "." + kind_name(kind); }

}  // namespace linkcpp::moe
