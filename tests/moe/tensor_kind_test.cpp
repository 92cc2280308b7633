#include "moe/tensor_kind.h"

#include <gtest/gtest.h>

namespace linkcpp::moe {
namespace {

TEST(TensorKind, EveryKindHasANameThatParsesBack) {
    for (uint8_t code = 0; code < 16; ++code) {
        const ExpertTensorName name{31, *TensorKind::from_code(code)};
        EXPECT_EQ(ExpertTensorName::parse(name.str()), name) << name.str();
        EXPECT_EQ(name.kind.code(), code);
    }
    EXPECT_FALSE(TensorKind::from_code(16));
}

TEST(TensorKind, NamesAreLlamaCpps) {
    EXPECT_EQ((ExpertTensorName{3, {Matrix::gate, Role::weight}}.str()), "blk.3.ffn_gate_exps.weight");
    EXPECT_EQ((ExpertTensorName{0, {Matrix::gate_up, Role::bias}}.str()), "blk.0.ffn_gate_up_exps.bias");
    EXPECT_EQ((ExpertTensorName{0, {Matrix::down, Role::input_scale}}.str()), "blk.0.ffn_down_exps.input_scale");
}

TEST(TensorKind, WhatIsNotAnExpertTensorIsRefused) {
    for (const char* name :
         {"", "blk.", "blk.x.ffn_up_exps.weight", "blk.-1.ffn_up_exps.weight", "blk.3.ffn_up.weight",
          "blk.3.ffn_up_shexp.weight", "blk.3.ffn_gate_inp.weight", "blk.3.ffn_norm_exps.weight",
          "blk.3.ffn_up_exps.weight.lora_a", "blk.3.ffn_up_exps", "blk.99999999999.ffn_up_exps.weight",
          "xblk.3.ffn_up_exps.weight", "blk.3.ffn_up_chexps.weight"}) {
        EXPECT_FALSE(ExpertTensorName::parse(name)) << name;
    }
}

}  // namespace
}  // namespace linkcpp::moe
