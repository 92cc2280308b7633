#include "worker/self_test.h"

#include "base/floats.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::worker {

namespace {

using moe::Matrix;
using moe::Op;

/// Adds steps one by one; the last one's value is the operand of the next.
class ProgramBuilder {
  public:
    explicit ProgramBuilder(const moe::LayerShapes& shapes) : shapes_(shapes) {}

    const moe::LayerShapes::Entry& entry(Matrix matrix) const { return shapes_.matrix[static_cast<size_t>(matrix)]; }
    uint8_t step(moe::Step step) {
        program_.steps.push_back(step);
        return static_cast<uint8_t>(program_.steps.size());
    }
    uint8_t multiply(Matrix matrix, uint8_t a) {
        uint8_t value = step({.op = Op::matmul, .matrix = matrix, .a = a});
        if (entry(matrix).has_bias) value = step({.op = Op::add_bias, .matrix = matrix, .a = value});
        return value;
    }
    moe::Program take() { return std::move(program_); }

  private:
    const moe::LayerShapes& shapes_;
    moe::Program program_;
};

/// The same numbers everywhere, about as large as activations are.
std::vector<float> test_row(int64_t n) {
    std::vector<float> row(static_cast<size_t>(n));
    uint32_t state = 1;
    for (float& value : row) {
        state = state * 1664525 + 1013904223;
        value = static_cast<float>(static_cast<int32_t>(state)) / 2147483648.0f;
    }
    return row;
}

Status check_rows(std::span<const float> rows, size_t n_out, int layer) {
    for (size_t expert = 0; expert * n_out < rows.size(); ++expert) {
        const auto row = rows.subspan(expert * n_out, n_out);
        const bool finite = all_finite(row);
        const bool zero = std::all_of(row.begin(), row.end(), [](float value) { return value == 0; });
        if (finite && !zero) continue;
        return {Code::corrupt, fmt::format("the self-test failed: layer {}, expert {} of the slice gives {}", layer,
                                           expert, finite ? "only zeros" : "numbers that are not finite")};
    }
    return {};
}

}  // namespace

Result<moe::Program> usual_program(const moe::LayerShapes& shapes) {
    ProgramBuilder builder(shapes);
    uint8_t hidden = 0;
    if (builder.entry(Matrix::gate_up).present) {
        const uint8_t both = builder.multiply(Matrix::gate_up, 0);
        const uint8_t gate = builder.step({.op = Op::first_half, .a = both});
        const uint8_t up = builder.step({.op = Op::second_half, .a = both});
        hidden = builder.step({.op = Op::swiglu, .a = gate, .b = up});
    } else if (builder.entry(Matrix::up).present) {
        const uint8_t gate = builder.entry(Matrix::gate).present ? builder.multiply(Matrix::gate, 0) : uint8_t{0};
        const uint8_t up = builder.multiply(Matrix::up, 0);
        hidden =
            gate == 0 ? builder.step({.op = Op::silu, .a = up}) : builder.step({.op = Op::swiglu, .a = gate, .b = up});
    }
    if (hidden == 0 || !builder.entry(Matrix::down).present)
        return {Code::unsupported, "these experts are no feed-forward network that a self-test knows"};
    builder.multiply(Matrix::down, hidden);
    return builder.take();
}

Status self_test(moe::Engine& engine) {
    for (int layer : engine.layers()) {
        const moe::LayerShapes shapes = engine.shapes(layer);
        const Result<moe::Program> program = usual_program(shapes);
        if (!program.ok()) return program.status();
        const Result<moe::ProgramShape> shape = moe::check_program(*program, shapes);
        if (!shape.ok()) return shape.status();
        const size_t n = static_cast<size_t>(engine.n_expert()), n_out = static_cast<size_t>(shape->n_out);
        std::vector<uint32_t> row(n, 0), expert(n);
        for (size_t i = 0; i < n; ++i)
            expert[i] = static_cast<uint32_t>(i);
        std::vector<float> rows(n * n_out);
        LINKCPP_TRY(engine.compute(layer, *program, test_row(shape->n_in), row, expert, rows));
        LINKCPP_TRY(check_rows(rows, n_out, layer));
    }
    return {};
}

}  // namespace linkcpp::worker
