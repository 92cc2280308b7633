// What a worker's rows may differ by: the measured differences of processors pass, other weights do not.

#include "dispatch/compare.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace linkcpp::dispatch {
namespace {

constexpr const char *avx512 = "CPU:AVX512,REPACK", *neon = "CPU:NEON,REPACK", *gpu = "Vulkan/Some GPU";
constexpr size_t n_out = 256;

class CompareTest : public testing::Test {
  protected:
    /// Random rows, and the same with an error of `nmse` in row `which`.
    std::vector<float> rows(size_t n) {
        std::vector<float> values(n * n_out);
        for (float& value : values)
            value = normal(random);
        return values;
    }
    static std::vector<float> with_error(std::vector<float> values, size_t which, double nmse) {
        for (size_t i = which * n_out; i < (which + 1) * n_out; ++i)
            values[i] *= 1 + static_cast<float>(std::sqrt(nmse)) * (i % 2 == 0 ? 1.0f : -1.0f);
        return values;
    }
    static bool same(const std::vector<float>& a, const std::vector<float>& b, const char* one, const char* other,
                     Depth depth = Depth::matrix) {
        return compare_rows(a, b, n_out, tolerance(one, other, depth)).ok();
    }

    std::minstd_rand random{5};
    std::normal_distribution<float> normal;
};

TEST_F(CompareTest, EveryBitWithinANumericClass) {
    const auto right = rows(4);
    auto almost = right;
    almost[777] = std::nextafter(almost[777], 100.0f);
    EXPECT_TRUE(same(right, right, avx512, avx512));
    EXPECT_FALSE(same(right, almost, avx512, avx512));
    EXPECT_TRUE(same(right, almost, avx512, neon));
    EXPECT_TRUE(same(right, almost, "", "")) << "an unknown class is not known to be the same";
}

// The figures are those of docs/NUMERICS.md: half precision on ARM at the widest models, and q8_0 in place of f16.
TEST_F(CompareTest, ProcessorsMayDifferByTheirRoundingButNotByTheirWeights) {
    const auto right = rows(1000);
    EXPECT_TRUE(same(right, with_error(right, 999, 5.9e-6), avx512, neon));
    EXPECT_FALSE(same(right, with_error(right, 999, 3.1e-5), avx512, neon)) << "one row of a thousand";
    EXPECT_TRUE(same(right, with_error(right, 0, 1.3e-5), avx512, neon, Depth::program));
    EXPECT_TRUE(same(right, with_error(right, 0, 9e-5), avx512, gpu));
    for (const Depth depth : {Depth::matrix, Depth::program})
        EXPECT_FALSE(same(right, with_error(right, 0, 2e-4), avx512, gpu, depth));
}

TEST_F(CompareTest, ARowOfAnotherExpertIsNeverTheSame) {
    const auto right = rows(8);
    for (size_t wrong = 1; wrong < 8; ++wrong) {
        auto answer = right;
        std::copy_n(right.begin() + static_cast<ptrdiff_t>(wrong * n_out), n_out, answer.begin());
        EXPECT_FALSE(same(right, answer, avx512, gpu));
        EXPECT_FALSE(same(right, answer, avx512, neon, Depth::program));
    }
    EXPECT_FALSE(same(right, std::vector<float>(right.size()), avx512, gpu)) << "zeros";
    EXPECT_FALSE(same(right, rows(7), avx512, gpu)) << "another size";
}

}  // namespace
}  // namespace linkcpp::dispatch
