#pragma once
// The expert program: what a worker computes for one row, between the router's choice and the weighted sum. The backbone
// derives it from llama.cpp's graph; a worker validates it against its slice before it builds a graph from it. A closed
// vocabulary, values by index, weights by kind, never addresses: see docs/PROTOCOL.md ("Expert programs").
//
// A program is a list of steps in single assignment: value 0 is the input row x, step i makes value i + 1. The last
// value is the output row. What follows per token (weighting, summing) is not part of a program: `weighted` says
// whether the backbone multiplies output rows by the router weights before it sums them.

#include "base/bytes.h"
#include "base/status.h"
#include "moe/tensor_kind.h"

#include <array>
#include <vector>

namespace linkcpp::moe {

enum class Op : uint8_t {
    matmul = 1,       ///< W[expert] * a; weight of `matrix`: [n_in] -> [n_out]          (GGML_OP_MUL_MAT_ID)
    add_bias = 2,     ///< a + b[expert]; bias of `matrix`                                (GGML_OP_ADD_ID)
    first_half = 3,   ///< a[0 : n/2]
    second_half = 4,  ///< a[n/2 : n]
    silu = 10,
    gelu = 11,
    relu = 12,
    sigmoid = 13,
    tanh = 14,
    gelu_quick = 15,
    gelu_erf = 16,
    sqr = 20,    ///< a * a
    clamp = 21,  ///< min(max(a, p0), p1)
    scale = 22,  ///< a * p0 + p1
    mul = 30,    ///< a * b
    add = 31,    ///< a + b
    // Gated activations: act(a) * b
    swiglu = 40,
    geglu = 41,
    reglu = 42,
    geglu_erf = 43,
    geglu_quick = 44,
    swiglu_oai = 45,    ///< p0 = alpha, p1 = limit
    swiglu_clamp = 46,  ///< p0 = limit
};

struct Step {
    Op op = Op::matmul;
    Matrix matrix = Matrix::up;  ///< matmul, add_bias
    uint8_t a = 0, b = 0;        ///< value indices; b only for two operands
    std::array<float, 2> p{0, 0};
    bool operator==(const Step&) const = default;
};

struct Program {
    bool weighted = false;  ///< rows are multiplied by the router weights before they are summed
    std::vector<Step> steps;
    bool operator==(const Program&) const = default;
};

constexpr size_t max_program_steps = 64;
constexpr size_t max_program_bytes = 4096;

Bytes encode_program(const Program& program);
/// Errors: corrupt (not a program: unknown op, operand from the future, trailing bytes…), exhausted (too large),
/// mismatch (another version of the format; both versions are in the message).
Result<Program> decode_program(ByteSpan bytes);

/// "gate = matmul(gate, x); …" for logs and errors.
std::string describe(const Program& program);

/// Widths of one row, for validation: the shapes a layer's weights have.
struct LayerShapes {
    struct Entry {
        bool present = false, has_bias = false;
        int64_t n_in = 0, n_out = 0;
    };
    std::array<Entry, 4> matrix;  ///< by Matrix
};

struct ProgramShape {
    int64_t n_in = 0;    ///< width of an input row
    int64_t n_out = 0;   ///< width of an output row
    int64_t n_live = 0;  ///< numbers per row, besides x, that are alive at one time, at most: memory
};

/// Checks every step against the layer's shapes. Errors: not_found (a matrix or bias the layer does not have),
/// invalid_argument (widths that do not fit). A program needs at least one matmul of the input.
Result<ProgramShape> check_program(const Program& program, const LayerShapes& shapes);

}  // namespace linkcpp::moe
