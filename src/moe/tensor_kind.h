#pragma once
// The names of expert tensors in llama.cpp v0.4.0: "blk.<layer>.ffn_<matrix>_exps.<role>". Everything that holds one
// slab per expert and is used by the routed FFN; router, shared expert (`_shexp`) and norms are not expert tensors.

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace linkcpp::moe {

enum class Matrix : uint8_t { up = 0, gate = 1, gate_up = 2, down = 3 };

/// weight: [n_in, n_out, n_expert]; bias: [n_out, n_expert]; scale and input_scale: [n_expert].
enum class Role : uint8_t { weight = 0, bias = 1, scale = 2, input_scale = 3 };

struct TensorKind {
    Matrix matrix = Matrix::up;
    Role role = Role::weight;
    auto operator<=>(const TensorKind&) const = default;

    /// One byte on the wire and in digests: role * 4 + matrix.
    uint8_t code() const { return static_cast<uint8_t>(static_cast<int>(role) * 4 + static_cast<int>(matrix)); }
    static std::optional<TensorKind> from_code(uint8_t code);
};

struct ExpertTensorName {
    int layer = 0;
    TensorKind kind;
    auto operator<=>(const ExpertTensorName&) const = default;

    static std::optional<ExpertTensorName> parse(std::string_view tensor_name);
    /// "blk.3.ffn_gate_exps.weight"
    std::string str() const;
};

/// "ffn_gate_exps.weight"
std::string kind_name(TensorKind kind);

}  // namespace linkcpp::moe
