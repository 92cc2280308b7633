#include "moe/program.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

constexpr std::array<uint8_t, 4> program_magic = {'L', 'C', 'E', 'P'};
constexpr uint8_t program_version = 1;
constexpr size_t step_bytes = 12;

enum class Arity { matrix, unary, binary };

struct OpInfo {
    Op op;
    const char* name;
    Arity arity;
    int n_params;
};

constexpr OpInfo op_table[] = {
    {Op::matmul, "matmul", Arity::matrix, 0},
    {Op::add_bias, "add_bias", Arity::matrix, 0},
    {Op::first_half, "first_half", Arity::unary, 0},
    {Op::second_half, "second_half", Arity::unary, 0},
    {Op::silu, "silu", Arity::unary, 0},
    {Op::gelu, "gelu", Arity::unary, 0},
    {Op::relu, "relu", Arity::unary, 0},
    {Op::sigmoid, "sigmoid", Arity::unary, 0},
    {Op::tanh, "tanh", Arity::unary, 0},
    {Op::gelu_quick, "gelu_quick", Arity::unary, 0},
    {Op::gelu_erf, "gelu_erf", Arity::unary, 0},
    {Op::sqr, "sqr", Arity::unary, 0},
    {Op::clamp, "clamp", Arity::unary, 2},
    {Op::scale, "scale", Arity::unary, 2},
    {Op::mul, "mul", Arity::binary, 0},
    {Op::add, "add", Arity::binary, 0},
    {Op::swiglu, "swiglu", Arity::binary, 0},
    {Op::geglu, "geglu", Arity::binary, 0},
    {Op::reglu, "reglu", Arity::binary, 0},
    {Op::geglu_erf, "geglu_erf", Arity::binary, 0},
    {Op::geglu_quick, "geglu_quick", Arity::binary, 0},
    {Op::swiglu_oai, "swiglu_oai", Arity::binary, 2},
    {Op::swiglu_clamp, "swiglu_clamp", Arity::binary, 1},
};

const OpInfo* find_op(uint8_t code) {
    for (const OpInfo& info : op_table) {
        if (static_cast<uint8_t>(info.op) == code) return &info;
    }
    return nullptr;
}

const char* matrix_name(Matrix matrix) {
    constexpr const char* names[] = {"up", "gate", "gate_up", "down"};
    return names[static_cast<size_t>(matrix)];
}

/// A step as it must look: fields its operation does not use are zero, so that equal programs have equal bytes.
Status check_step(const Step& step, const OpInfo& info, size_t index) {
    const auto wrong = [&](const char* what) {
        return Status(Code::corrupt, fmt::format("expert program: step {} ({}): {}", index, info.name, what));
    };
    if (step.a > index) return wrong("its first operand is not computed yet");
    if (info.arity == Arity::binary ? step.b > index : step.b != 0) return wrong("its second operand makes no sense");
    if (info.arity != Arity::matrix && step.matrix != Matrix::up) return wrong("it names a matrix");
    for (int i = 0; i < 2; ++i) {
        if (std::isnan(step.p[static_cast<size_t>(i)])) return wrong("a parameter is not a number");
        // By its bits: a negative zero would be a second encoding.
        if (i >= info.n_params && std::bit_cast<uint32_t>(step.p[static_cast<size_t>(i)]) != 0)
            return wrong("a parameter that it does not take");
    }
    return {};
}

/// The largest sum of widths of values, x apart, that are needed at one time: computed, and an operand from then on.
int64_t most_live(const Program& program, const std::vector<int64_t>& width) {
    std::vector<size_t> last_use(width.size(), 0);  // the step that needs a value last
    for (size_t i = 0; i < program.steps.size(); ++i)
        last_use[program.steps[i].a] = last_use[program.steps[i].b] = i;
    int64_t most = 0;
    for (size_t i = 0; i < program.steps.size(); ++i) {
        int64_t live = width[i + 1];
        for (size_t value = 1; value <= i; ++value)
            live += last_use[value] >= i ? width[value] : 0;
        most = std::max(most, live);
    }
    return most;
}

}  // namespace

Bytes encode_program(const Program& program) {
    ByteWriter out;
    out.raw(program_magic);
    out.u8(program_version);
    out.u8(program.weighted ? 1 : 0);
    out.u16(static_cast<uint16_t>(program.steps.size()));
    for (const Step& step : program.steps) {
        out.u8(static_cast<uint8_t>(step.op));
        out.u8(static_cast<uint8_t>(step.matrix));
        out.u8(step.a);
        out.u8(step.b);
        out.f32(step.p[0]);
        out.f32(step.p[1]);
    }
    return out.take();
}

Result<Program> decode_program(ByteSpan bytes) {
    if (bytes.size() > max_program_bytes) {
        return {Code::exhausted,
                fmt::format("expert program: {} bytes, at most {} are allowed", bytes.size(), max_program_bytes)};
    }
    ByteReader in(bytes);
    const ByteSpan magic = in.take(program_magic.size());
    const uint8_t version = in.u8(), flags = in.u8();
    const uint16_t n_steps = in.u16();
    if (!in.ok() || !std::equal(magic.begin(), magic.end(), program_magic.begin())) {
        return {Code::corrupt, "expert program: it does not begin with the magic 'LCEP'"};
    }
    if (version != program_version) {
        return {Code::mismatch,
                fmt::format("expert program: format {} was sent, this side reads format {}", version, program_version)};
    }
    if (flags > 1) return {Code::corrupt, "expert program: unknown flags"};
    if (n_steps == 0 || n_steps > max_program_steps) {
        return {Code::exhausted,
                fmt::format("expert program: {} steps, 1 to {} are allowed", n_steps, max_program_steps)};
    }
    if (in.left() != n_steps * step_bytes) return {Code::corrupt, "expert program: its length does not fit its steps"};

    Program program;
    program.weighted = (flags & 1) != 0;
    for (size_t i = 0; i < n_steps; ++i) {
        const uint8_t op = in.u8(), matrix = in.u8();
        Step step;
        step.a = in.u8();
        step.b = in.u8();
        step.p = {in.f32(), in.f32()};
        const OpInfo* info = find_op(op);
        if (info == nullptr)
            return {Code::corrupt, fmt::format("expert program: step {}: unknown operation {}", i, op)};
        if (matrix > 3) return {Code::corrupt, fmt::format("expert program: step {}: unknown matrix {}", i, matrix)};
        step.op = info->op;
        step.matrix = static_cast<Matrix>(matrix);
        LINKCPP_TRY(check_step(step, *info, i));
        program.steps.push_back(step);
    }
    return program;
}

std::string describe(const Program& program) {
    std::string text;
    for (size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        const OpInfo* info = find_op(static_cast<uint8_t>(step.op));
        const auto value = [](uint8_t index) { return index == 0 ? std::string("x") : fmt::format("v{}", index); };
        text += fmt::format("{}v{} = {}(", i == 0 ? "" : "; ", i + 1, info == nullptr ? "?" : info->name);
        if (info != nullptr && info->arity == Arity::matrix) text += fmt::format("{}, ", matrix_name(step.matrix));
        text += value(step.a);
        if (info != nullptr && info->arity == Arity::binary) text += ", " + value(step.b);
        for (int p = 0; info != nullptr && p < info->n_params; ++p)
            text += fmt::format(", {}", step.p[static_cast<size_t>(p)]);
        text += ")";
    }
    return text + (program.weighted ? "; weighted" : "");
}

Result<ProgramShape> check_program(const Program& program, const LayerShapes& shapes) {
    if (program.steps.empty() || program.steps.size() > max_program_steps) {
        return {Code::invalid_argument, "expert program: no steps, or too many"};
    }
    std::vector<int64_t> width(program.steps.size() + 1, 0);  // of each value; 0 = x, known from its first matmul
    for (size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        const OpInfo* info = find_op(static_cast<uint8_t>(step.op));
        if (info == nullptr || static_cast<size_t>(step.matrix) > 3) {
            return {Code::invalid_argument, fmt::format("expert program: step {} is unknown", i)};
        }
        LINKCPP_TRY(check_step(step, *info, i));
        const auto wrong = [&](const std::string& what) {
            return Status(Code::invalid_argument, fmt::format("expert program: step {} ({}): {}", i, info->name, what));
        };
        const auto& entry = shapes.matrix[static_cast<size_t>(step.matrix)];
        if (step.op == Op::matmul) {
            if (!entry.present) {
                return {Code::not_found,
                        fmt::format("expert program: the layer has no matrix '{}'", matrix_name(step.matrix))};
            }
            if (entry.n_in <= 0 || entry.n_in > INT32_MAX || entry.n_out <= 0 || entry.n_out > INT32_MAX)
                return wrong(fmt::format("the matrix is {} by {}", entry.n_in, entry.n_out));
            if (step.a == 0 && width[0] == 0) width[0] = entry.n_in;
            if (width[step.a] != entry.n_in) {
                return wrong(fmt::format("the operand has width {}, the matrix takes {}", width[step.a], entry.n_in));
            }
            width[i + 1] = entry.n_out;
            continue;
        }
        // There is one input row per token and one of everything else per pair: ggml ends the process when they are mixed.
        if (step.a == 0 || (info->arity == Arity::binary && step.b == 0))
            return wrong("the input row can only be multiplied by a matrix");
        if (width[step.a] == 0) return wrong("its operand has no elements");
        width[i + 1] = width[step.a];
        if (step.op == Op::add_bias) {
            if (!entry.has_bias) {
                return {Code::not_found,
                        fmt::format("expert program: the layer has no bias '{}'", matrix_name(step.matrix))};
            }
            if (width[step.a] != entry.n_out) return wrong("the operand's width is not the bias's");
        } else if (step.op == Op::first_half || step.op == Op::second_half) {
            if (width[step.a] % 2 != 0) return wrong("an odd width cannot be halved");
            width[i + 1] = width[step.a] / 2;
        } else if (info->arity == Arity::binary && width[step.a] != width[step.b]) {
            return wrong(fmt::format("its operands have widths {} and {}", width[step.a], width[step.b]));
        }
    }
    if (width[0] == 0) return {Code::invalid_argument, "expert program: the input row is never multiplied by a matrix"};
    return ProgramShape{width[0], width.back(), most_live(program, width)};
}

}  // namespace linkcpp::moe
