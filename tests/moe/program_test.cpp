// Expert programs: their bytes, what is refused, and how they are checked against a layer's shapes.

#include "moe/program.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace linkcpp::moe {
namespace {

Program swiglu() {
    Program program;
    program.weighted = true;
    program.steps = {{Op::matmul, Matrix::up, 0, 0, {0, 0}},
                     {Op::matmul, Matrix::gate, 0, 0, {0, 0}},
                     {Op::swiglu, Matrix::up, 2, 1, {0, 0}},
                     {Op::clamp, Matrix::up, 3, 0, {-1.5f, 2.0f}},
                     {Op::matmul, Matrix::down, 4, 0, {0, 0}}};
    return program;
}

LayerShapes shapes() {
    LayerShapes shapes;
    shapes.matrix[static_cast<size_t>(Matrix::up)] = {true, true, 8, 24};
    shapes.matrix[static_cast<size_t>(Matrix::gate)] = {true, false, 8, 24};
    shapes.matrix[static_cast<size_t>(Matrix::down)] = {true, false, 24, 8};
    return shapes;
}

TEST(Program, GoldenBytes) {
    const Bytes golden = {
        'L', 'C', 'E', 'P', 1, 1, 5,    0,                    // magic, format, weighted, steps
        1,   0,   0,   0,   0, 0, 0,    0,    0, 0, 0, 0,     // matmul up x
        1,   1,   0,   0,   0, 0, 0,    0,    0, 0, 0, 0,     // matmul gate x
        40,  0,   2,   1,   0, 0, 0,    0,    0, 0, 0, 0,     // swiglu v2, v1
        21,  0,   3,   0,   0, 0, 0xc0, 0xbf, 0, 0, 0, 0x40,  // clamp v3, -1.5, 2
        1,   3,   4,   0,   0, 0, 0,    0,    0, 0, 0, 0,     // matmul down v4
    };
    EXPECT_EQ(encode_program(swiglu()), golden);
    const auto decoded = decode_program(golden);
    ASSERT_TRUE(decoded.ok()) << decoded.status().message();
    EXPECT_EQ(*decoded, swiglu());
}

TEST(Program, EveryTruncationIsRefused) {
    const Bytes bytes = encode_program(swiglu());
    for (size_t n = 0; n < bytes.size(); ++n) {
        EXPECT_FALSE(decode_program(ByteSpan(bytes).first(n)).ok()) << n;
    }
    Bytes longer = bytes;
    longer.push_back(0);
    EXPECT_FALSE(decode_program(longer).ok());
}

struct Damage {
    const char* name;
    size_t offset;
    uint8_t value;
    Code code;
};

class DamagedProgram : public testing::TestWithParam<Damage> {};

TEST_P(DamagedProgram, IsRefused) {
    Bytes bytes = encode_program(swiglu());
    bytes[GetParam().offset] = GetParam().value;
    const auto decoded = decode_program(bytes);
    ASSERT_FALSE(decoded.ok());
    EXPECT_EQ(decoded.status().code(), GetParam().code) << decoded.status().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedProgram,
    testing::Values(Damage{"magic", 0, 'X', Code::corrupt}, Damage{"format", 4, 2, Code::mismatch},
                    Damage{"flags", 5, 2, Code::corrupt}, Damage{"no_steps", 6, 0, Code::exhausted},
                    Damage{"too_many_steps", 6, 65, Code::exhausted}, Damage{"fewer_steps", 6, 4, Code::corrupt},
                    Damage{"unknown_operation", 8, 99, Code::corrupt}, Damage{"unknown_matrix", 9, 4, Code::corrupt},
                    Damage{"operand_from_the_future", 10, 1, Code::corrupt},
                    Damage{"operand_b_where_none_is", 11, 1, Code::corrupt},
                    Damage{"parameter_where_none_is", 12, 1, Code::corrupt},
                    Damage{"operand_b_from_the_future", 8 + 24 + 3, 3, Code::corrupt},
                    Damage{"matrix_where_none_is", 8 + 24 + 1, 1, Code::corrupt}),
    [](const auto& test) { return test.param.name; });

TEST(Program, AParameterThatIsNotANumberIsRefused) {
    Program program = swiglu();
    program.steps[3].p[0] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(decode_program(encode_program(program)).status().code(), Code::corrupt);
    program.steps[3].p[0] = -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(decode_program(encode_program(program)).ok()) << "a clamp may be open to one side";
}

TEST(Program, ANegativeZeroIsNoSecondEncodingOfAnUnusedParameter) {
    Program program = swiglu();
    program.steps[0].p[1] = -0.0f;
    EXPECT_EQ(decode_program(encode_program(program)).status().code(), Code::corrupt);
}

TEST(Program, SaysHowManyNumbersOfARowAreAliveAtATime) {
    EXPECT_EQ(check_program(swiglu(), shapes())->n_live, 3 * 24) << "up, gate and their product";
    // All of 62 copies are needed in the end.
    Program hoarder{false, {{Op::matmul, Matrix::up, 0, 0, {0, 0}}}};
    for (uint8_t i = 1; i <= 31; ++i)
        hoarder.steps.push_back({Op::silu, Matrix::up, i, 0, {0, 0}});
    for (uint8_t i = 1; i <= 31; ++i)
        hoarder.steps.push_back({Op::add, Matrix::up, static_cast<uint8_t>(31 + i), i, {0, 0}});
    EXPECT_GE(check_program(hoarder, shapes())->n_live, 31 * 24);
}

TEST(Program, CheckedAgainstALayer) {
    const auto widths = check_program(swiglu(), shapes());
    ASSERT_TRUE(widths.ok()) << widths.status().message();
    EXPECT_EQ(widths->n_in, 8);
    EXPECT_EQ(widths->n_out, 8);
}

TEST(Program, WhatTheLayerDoesNotHaveIsNamed) {
    Program program = swiglu();
    program.steps[0].matrix = Matrix::gate_up;
    EXPECT_EQ(check_program(program, shapes()).status().code(), Code::not_found);
    program = swiglu();
    program.steps[3] = {Op::add_bias, Matrix::gate, 2, 0, {0, 0}};
    EXPECT_EQ(check_program(program, shapes()).status().code(), Code::not_found);
}

TEST(Program, WidthsMustFit) {
    const auto refused = [](std::vector<Step> steps) {
        const auto result = check_program({false, std::move(steps)}, shapes());
        return !result.ok() && result.status().code() == Code::invalid_argument;
    };
    EXPECT_TRUE(refused({})) << "no steps";
    EXPECT_TRUE(refused({{Op::silu, Matrix::up, 0, 0, {0, 0}}})) << "x is not multiplied";
    EXPECT_TRUE(refused({{Op::matmul, Matrix::up, 0, 0, {0, 0}}, {Op::matmul, Matrix::up, 1, 0, {0, 0}}}));
    EXPECT_TRUE(refused({{Op::matmul, Matrix::up, 0, 0, {0, 0}},
                         {Op::matmul, Matrix::down, 1, 0, {0, 0}},
                         {Op::add, Matrix::up, 1, 2, {0, 0}}}));
    EXPECT_TRUE(refused({{Op::matmul, Matrix::down, 0, 0, {0, 0}}, {Op::matmul, Matrix::up, 0, 0, {0, 0}}}))
        << "x has one width";
}

TEST(Program, TheInputRowIsMultipliedByMatricesOnly) {
    LayerShapes square;
    square.matrix[0] = {true, true, 8, 8};
    const Step matmul{Op::matmul, Matrix::up, 0, 0, {0, 0}};
    for (const Step& step : {Step{Op::silu, Matrix::up, 0, 0, {0, 0}}, Step{Op::add_bias, Matrix::up, 0, 0, {0, 0}},
                             Step{Op::first_half, Matrix::up, 0, 0, {0, 0}}, Step{Op::mul, Matrix::up, 0, 1, {0, 0}},
                             Step{Op::swiglu, Matrix::up, 1, 0, {0, 0}}}) {
        EXPECT_EQ(check_program({false, {matmul, step}}, square).status().code(), Code::invalid_argument);
    }
    EXPECT_TRUE(check_program({false, {matmul, {Op::matmul, Matrix::up, 0, 0, {0, 0}}}}, square).ok());
}

TEST(Program, MatricesOfImpossibleWidthsAreRefused) {
    for (int64_t width : {int64_t{0}, int64_t{-8}, INT64_MAX, INT64_MIN}) {
        for (const auto& [in, out] : {std::pair(width, int64_t{8}), std::pair(int64_t{8}, width)}) {
            LayerShapes shapes;
            shapes.matrix[0] = {true, true, in, out};
            const Program program{false, {{Op::matmul, Matrix::up, 0, 0, {0, 0}}, {Op::sqr, Matrix::up, 1, 0, {0, 0}}}};
            EXPECT_EQ(check_program(program, shapes).status().code(), Code::invalid_argument) << in << " " << out;
        }
    }
}

TEST(Program, HalvesNeedAnEvenWidth) {
    LayerShapes odd;
    odd.matrix[static_cast<size_t>(Matrix::gate_up)] = {true, false, 8, 7};
    const Program program{false,
                          {{Op::matmul, Matrix::gate_up, 0, 0, {0, 0}}, {Op::first_half, Matrix::up, 1, 0, {0, 0}}}};
    EXPECT_EQ(check_program(program, odd).status().code(), Code::invalid_argument);
}

TEST(Program, DescribesItself) {
    EXPECT_EQ(describe(swiglu()), "v1 = matmul(up, x); v2 = matmul(gate, x); v3 = swiglu(v2, v1); v4 = clamp(v3, -1.5, "
                                  "2); v5 = matmul(down, v4); weighted");
}

}  // namespace
}  // namespace linkcpp::moe
