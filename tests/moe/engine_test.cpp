// The engine: the same rows however they are handed over, padding of small slices, and refusals.

#include "moe/engine.h"

#include "ggml.h"
#include "moe/model_file.h"

#include <cstring>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <set>

namespace linkcpp::moe {
namespace {

constexpr int type_f32 = 0;

class EngineTest : public testing::Test {
  protected:
    void SetUp() override {
        auto opened = Device::open("", 2);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        device = *opened;
    }
    ExpertTensor tensor(Matrix matrix, int64_t n_in, int64_t n_out, int n_expert) {
        auto& values = data.emplace_back(static_cast<size_t>(n_in * n_out * n_expert));
        for (float& value : values)
            value = normal(random);
        ExpertTensor tensor;
        tensor.name = {5, {matrix, Role::weight}};
        tensor.type = type_f32;
        tensor.ne = {n_in, n_out};
        tensor.slab_bytes = static_cast<uint64_t>(n_in * n_out) * sizeof(float);
        tensor.data = as_bytes(std::span<const float>(values));
        return tensor;
    }
    std::unique_ptr<Engine> engine(const std::vector<ExpertTensor>& tensors) {
        auto loaded = Engine::load(device, tensors);
        EXPECT_TRUE(loaded.ok()) << loaded.status().message();
        return std::move(*loaded);
    }

    std::shared_ptr<Device> device;
    std::list<std::vector<float>> data;
    std::minstd_rand random{3};
    std::normal_distribution<float> normal;
    const Program up{false, {{Op::matmul, Matrix::up, 0, 0, {0, 0}}}};
};

TEST_F(EngineTest, ComputesWhatAPlainLoopComputes) {
    const ExpertTensor w = tensor(Matrix::up, 32, 8, 4);
    auto loaded = engine({w});
    std::vector<float> x(3 * 32);
    for (float& value : x)
        value = normal(random);
    const std::vector<uint32_t> row = {2, 0, 1, 2}, expert = {3, 0, 3, 1};
    std::vector<float> y(4 * 8);
    ASSERT_TRUE(loaded->compute(5, up, x, row, expert, y).ok());
    for (size_t p = 0; p < 4; ++p) {
        for (size_t o = 0; o < 8; ++o) {
            double sum = 0;
            for (size_t i = 0; i < 32; ++i)
                sum += static_cast<double>(data.front()[expert[p] * 256 + o * 32 + i]) * x[row[p] * 32 + i];
            EXPECT_NEAR(y[p * 8 + o], sum, 1e-4);
        }
    }
}

TEST_F(EngineTest, RowsDoNotDependOnHowTheyAreGrouped) {
    auto loaded = engine({tensor(Matrix::up, 64, 16, 6)});
    std::vector<float> x(5 * 64);
    for (float& value : x)
        value = normal(random);
    std::vector<uint32_t> row, expert;  // two experts for each of five rows: the form that goes to ggml as it is
    for (uint32_t t = 0; t < 5; ++t) {
        for (uint32_t s = 0; s < 2; ++s) {
            row.push_back(t);
            expert.push_back((t + 3 * s) % 6);
        }
    }
    std::vector<float> together(10 * 16);
    ASSERT_TRUE(loaded->compute(5, up, x, row, expert, together).ok());
    for (size_t p = 0; p < 10; ++p) {
        std::vector<float> alone(16);
        const std::vector<uint32_t> one_row = {row[p]}, one_expert = {expert[p]};
        ASSERT_TRUE(loaded->compute(5, up, x, one_row, one_expert, alone).ok());
        EXPECT_EQ(std::memcmp(alone.data(), together.data() + p * 16, 16 * sizeof(float)), 0) << p;
    }
}

TEST_F(EngineTest, MemoryIsReckonedForActivationsOncePerTokenWhereTheyGoAsTheyAre) {
    const ProgramShape shape{.n_in = 100, .n_out = 10, .n_live = 30};
    const std::vector<uint32_t> row = {0, 0, 1, 1}, expert = {2, 5, 1, 2}, twice = {2, 2, 1, 2};
    EXPECT_EQ(bytes_to_compute(shape, row, expert, 2, 6), 4u * (2 * 100 + 4 * 30));
    EXPECT_EQ(bytes_to_compute(shape, row, twice, 2, 6), 4u * (4 * 100 + 4 * 30)) << "a copy for each pair";
}

/// A peer may ask for one expert many times for one row. ggml's repacked kernels have no room for that.
TEST_F(EngineTest, AnExpertAskedForManyTimesForOneRowIsComputedEachTime) {
    auto model = ModelFile::open(LINKCPP_SOURCE_DIR "/models/capitals-moe-qwen35moe-Q4_K_M.gguf");
    ASSERT_TRUE(model.ok());
    std::vector<ExpertTensor> layer;
    for (const ExpertTensor* tensor : model->layers()[1].tensors)
        layer.push_back(*tensor);
    auto loaded = engine(layer);
    std::vector<float> x(256), alone(256);
    for (float& value : x)
        value = normal(random);
    const std::vector<uint32_t> zero = {0}, seven = {7};
    ASSERT_TRUE(loaded->compute(1, up, x, zero, seven, alone).ok());
    for (const size_t n : {2u, 3u, 16u, 17u, 512u, 4000u}) {
        const std::vector<uint32_t> rows(n, 0), experts(n, 7);
        std::vector<float> y(n * 256);
        ASSERT_TRUE(loaded->compute(1, up, x, rows, experts, y).ok());
        for (size_t p = 0; p < n; ++p)
            ASSERT_EQ(std::memcmp(y.data() + p * 256, alone.data(), 256 * sizeof(float)), 0) << p << " of " << n;
    }
}

// Halves of rows lie in memory with gaps, which not every operation of ggml can read.
TEST_F(EngineTest, EveryOperationTakesHalvesOfRows) {
    auto loaded = engine({tensor(Matrix::up, 32, 16, 4)});
    std::vector<float> x(3 * 32, 0.5f);
    const std::vector<uint32_t> row = {0, 1, 2}, expert = {3, 0, 1};
    const auto compute = [&](std::vector<Step> steps) {
        steps.insert(steps.begin(), {{Op::matmul, Matrix::up, 0, 0, {0, 0}},
                                     {Op::first_half, Matrix::up, 1, 0, {0, 0}},
                                     {Op::second_half, Matrix::up, 1, 0, {0, 0}}});
        const Program program{false, std::move(steps)};
        const auto shape = check_program(program, loaded->shapes(5));
        if (!shape.ok()) return std::vector<float>();
        std::vector<float> y(3 * static_cast<size_t>(shape->n_out));
        const Status status = loaded->compute(5, program, x, row, expert, y);
        EXPECT_TRUE(status.ok()) << describe(program) << ": " << status.message();
        return y;
    };
    int n_computed = 0;
    for (int op = 3; op <= 46; ++op) {
        for (uint8_t a : {2, 3, 4}) {
            Step step{static_cast<Op>(op), Matrix::up, a, static_cast<uint8_t>(op >= 30 ? 2 : 0), {0, 0}};
            if (op == 21 || op == 22 || op == 45) step.p = {0.25f, 2.0f};
            if (op == 46) step.p[0] = 7.0f;
            const Step clamped{Op::clamp, Matrix::up, 3, 0, {-1, 1}};
            n_computed += compute({clamped, step}).empty() ? 0 : 1;
        }
    }
    EXPECT_EQ(n_computed, 3 * 21);
    const std::vector<float> half = compute({{Op::first_half, Matrix::up, 1, 0, {0, 0}}});
    std::vector<float> expected = half;
    for (float& value : expected)
        value = value * 2.0f + 1.0f;
    EXPECT_EQ(compute({{Op::scale, Matrix::up, 2, 0, {2, 1}}}), expected);
}

// Whatever a peer's program does with values of whatever shape: rows or an error, never the end of the process.
TEST_F(EngineTest, AnyProgramThatIsCheckedIsComputed) {
    const auto quantised = [&](Matrix matrix, int64_t n_in_row, int64_t n_rows) {
        ExpertTensor weights = tensor(matrix, n_in_row, n_rows, 4);
        weights.type = GGML_TYPE_Q4_0;
        weights.slab_bytes = static_cast<uint64_t>(n_rows) * ggml_row_size(GGML_TYPE_Q4_0, n_in_row);
        weights.data = weights.data.first(4 * static_cast<size_t>(weights.slab_bytes));
        return weights;
    };
    const auto bias = [&](Matrix matrix, int64_t width) {
        ExpertTensor values = tensor(matrix, width, 1, 4);
        values.name.kind.role = Role::bias;
        return values;
    };
    auto loaded = engine({quantised(Matrix::up, 64, 32), tensor(Matrix::gate, 64, 32, 4),
                          quantised(Matrix::gate_up, 64, 64), tensor(Matrix::down, 32, 64, 4), bias(Matrix::up, 32),
                          bias(Matrix::gate_up, 64), bias(Matrix::down, 64)});
    const LayerShapes shapes = loaded->shapes(5);
    const std::vector<float> x(3 * 64, 0.25f);
    const std::vector<uint32_t> regular = {0, 0, 1, 1, 2, 2}, mixed = {2, 0, 0, 1, 1, 1}, expert = {3, 1, 0, 2, 3, 0};
    const auto number = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
    std::set<Op> seen;
    for (int i = 0; i < 400; ++i) {
        Program program{false, {{Op::matmul, static_cast<Matrix>(number(3)), 0, 0, {0, 0}}}};
        const size_t n_steps = 2 + static_cast<size_t>(number(20));
        for (int attempt = 0; attempt < 2000 && program.steps.size() < n_steps; ++attempt) {
            const auto op = static_cast<Op>(1 + number(46));
            const int n_values = static_cast<int>(program.steps.size()) + 1;
            Step step{op,
                      static_cast<Matrix>(op <= Op::add_bias ? number(4) : 0),
                      static_cast<uint8_t>(number(n_values)),
                      static_cast<uint8_t>(op >= Op::mul ? number(n_values) : 0),
                      {0, 0}};
            if (op == Op::clamp || op == Op::scale || op == Op::swiglu_oai) step.p = {2.0f, -1.0f};
            if (op == Op::swiglu_clamp) step.p[0] = 1.0f;
            program.steps.push_back(step);
            if (!check_program(program, shapes).ok()) program.steps.pop_back();
        }
        for (const Step& step : program.steps)
            seen.insert(step.op);
        const auto widths = check_program(program, shapes);
        ASSERT_TRUE(widths.ok());
        std::vector<float> y(6 * static_cast<size_t>(widths->n_out));
        for (const auto& row : {regular, mixed}) {
            const Status status = loaded->compute(5, program, x, row, expert, y);
            EXPECT_TRUE(status.ok()) << describe(program) << ": " << status.message();
        }
    }
    EXPECT_EQ(seen.size(), 23u) << "every operation occurred";
}

// A file may say any type; what comes of it is rows or an error, never the end of the process.
TEST_F(EngineTest, EveryTensorTypeIsComputedOrRefused) {
    int n_computed = 0, n_refused = 0;
    for (int type = 0; type < GGML_TYPE_COUNT; ++type) {
        if (ggml_blck_size(static_cast<ggml_type>(type)) <= 0) continue;
        ExpertTensor weights = tensor(Matrix::up, 256, 8, 4);
        weights.type = type;
        weights.slab_bytes = 8 * ggml_row_size(static_cast<ggml_type>(type), 256);
        const Bytes zeros(4 * weights.slab_bytes);
        weights.data = zeros;
        auto loaded = Engine::load(device, {weights});
        n_refused += loaded.ok() ? 0 : 1;
        if (!loaded.ok()) continue;
        std::vector<float> x(2 * 256, 1.0f), y(2 * 8);
        const std::vector<uint32_t> row = {0, 1}, expert = {3, 1};
        const Status status = (*loaded)->compute(5, up, x, row, expert, y);
        EXPECT_TRUE(status.ok()) << ggml_type_name(static_cast<ggml_type>(type)) << ": " << status.message();
        ++n_computed;
    }
    EXPECT_GE(n_computed, 20);
    EXPECT_GE(n_refused, 3) << "integers are no weights";
}

TEST_F(EngineTest, ABiasOfAnotherWidthThanItsMatrixIsCorrupt) {
    const ExpertTensor weights = tensor(Matrix::up, 32, 8, 4);
    for (int64_t width : {8, 7, 16}) {
        ExpertTensor bias = tensor(Matrix::up, width, 1, 4);
        bias.name.kind.role = Role::bias;
        const auto loaded = Engine::load(device, {bias, weights});
        EXPECT_EQ(loaded.ok(), width == 8);
        if (!loaded.ok()) {
            EXPECT_EQ(loaded.status().code(), Code::corrupt) << loaded.status().message();
        }
    }
}

TEST_F(EngineTest, ASliceOfOneExpertHoldsOneExpert) {
    auto loaded = engine({tensor(Matrix::up, 32, 8, 1)});
    EXPECT_EQ(loaded->n_expert(), 1) << "the padding is not an expert";
    std::vector<float> x(32), y(8);
    const std::vector<uint32_t> row = {0}, second = {1};
    EXPECT_EQ(loaded->compute(5, up, x, row, second, y).code(), Code::invalid_argument);
}

// A worker reads, checks and loads slab by slab, on several threads; what it computes is what one that was loaded from
// memory computes, in a repacked layout too.
TEST_F(EngineTest, LoadsSlabBySlabWhatItIsGiven) {
    ExpertTensor w = tensor(Matrix::up, 256, 64, 300);
    Bytes quantised(ggml_row_size(GGML_TYPE_Q4_K, 256) * 64 * 300);
    ggml_quantize_chunk(GGML_TYPE_Q4_K, data.back().data(), quantised.data(), 0, 64 * 300, 256, nullptr);
    w.type = GGML_TYPE_Q4_K;
    w.slab_bytes = quantised.size() / 300;
    w.data = quantised;
    ExpertTensor scale = w;
    scale.name.kind.role = Role::scale;
    std::mutex mutex;
    std::map<std::pair<Role, size_t>, int> asked;
    const ReadSlab read = [&](const ExpertTensor& source, size_t slab, std::span<uint8_t> out) -> Status {
        std::copy_n(quantised.data() + slab * w.slab_bytes, out.size(), out.data());
        const std::lock_guard lock(mutex);
        ++asked[{source.name.kind.role, slab}];
        return {};
    };
    uint64_t last = 0;
    const auto progress = [&](uint64_t done, uint64_t total) {
        EXPECT_GT(done, std::exchange(last, done));
        EXPECT_EQ(total, 2 * quantised.size());
    };
    const auto slabwise = Engine::load(device, {w, scale}, progress, read);
    ASSERT_TRUE(slabwise.ok()) << slabwise.status().message();
    EXPECT_EQ(last, 2 * quantised.size());
    EXPECT_EQ(asked.size(), 600u) << "scales are asked for too: whoever reads checks them";
    for (const auto& [slab, times] : asked)
        EXPECT_EQ(times, 1);

    const auto whole = engine({w});
    std::vector<float> x(256), y(300 * 64), expected(y.size());
    for (float& value : x)
        value = normal(random);
    std::vector<uint32_t> row(300, 0), expert(300);
    std::iota(expert.begin(), expert.end(), 0u);
    ASSERT_TRUE((*slabwise)->compute(5, up, x, row, expert, y).ok());
    ASSERT_TRUE(whole->compute(5, up, x, row, expert, expected).ok());
    EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0);
    EXPECT_NE(std::memcmp(y.data(), y.data() + 64, 64 * sizeof(float)), 0) << "every expert has weights of its own";
}

TEST_F(EngineTest, ASlabThatCannotBeReadIsTheErrorOfTheLoad) {
    const ExpertTensor w = tensor(Matrix::up, 256, 64, 300);
    const auto loaded =
        Engine::load(device, {w}, {}, [&](const ExpertTensor&, size_t slab, std::span<uint8_t> out) -> Status {
            if (slab == 200) return {Code::corrupt, "slab 200 is damaged"};
            std::fill(out.begin(), out.end(), 0);
            return {};
        });
    EXPECT_EQ(loaded.status().code(), Code::corrupt);
    EXPECT_EQ(loaded.status().message(), "slab 200 is damaged");
}

TEST_F(EngineTest, RefusesWhatDoesNotFit) {
    auto loaded = engine({tensor(Matrix::up, 32, 8, 4)});
    std::vector<float> x(32), y(8);
    const std::vector<uint32_t> zero = {0}, one = {1}, nine = {9};
    EXPECT_EQ(loaded->compute(6, up, x, zero, zero, y).code(), Code::not_found) << "another layer";
    EXPECT_EQ(loaded->compute(5, up, x, one, zero, y).code(), Code::invalid_argument) << "a row that is not there";
    EXPECT_EQ(loaded->compute(5, up, x, zero, nine, y).code(), Code::invalid_argument) << "an expert that is not there";
    EXPECT_EQ(loaded->compute(5, up, std::span(x).first(31), zero, zero, y).code(), Code::invalid_argument);
    EXPECT_EQ(loaded->compute(5, up, x, zero, zero, std::span(y).first(7)).code(), Code::invalid_argument);
    EXPECT_EQ(loaded->compute(5, up, x, {}, {}, {}).code(), Code::invalid_argument) << "no pairs";
}

TEST_F(EngineTest, ATensorWhoseBytesDoNotFitItsShapeIsCorrupt) {
    ExpertTensor w = tensor(Matrix::up, 32, 8, 4);
    w.data = w.data.first(w.data.size() - 1);
    EXPECT_EQ(Engine::load(device, {w}).status().code(), Code::corrupt);
    w = tensor(Matrix::up, 32, 8, 4);
    w.type = 999;
    EXPECT_EQ(Engine::load(device, {w}).status().code(), Code::unsupported);
    EXPECT_EQ(Engine::load(device, {}).status().code(), Code::invalid_argument);
}

TEST_F(EngineTest, SaysHowMuchMemoryItWillTake) {
    const std::vector<ExpertTensor> tensors = {tensor(Matrix::up, 64, 32, 8), tensor(Matrix::down, 32, 64, 8)};
    const auto needed = Engine::bytes_needed(*device, tensors);
    ASSERT_TRUE(needed.ok());
    EXPECT_GE(*needed, engine(tensors)->bytes());
    EXPECT_LT(*needed, 2u * 64 * 32 * 8 * sizeof(float) * 2);
}

TEST_F(EngineTest, AnUnknownDeviceIsNamedWithThoseThatAreThere) {
    const auto opened = Device::open("TPU9", 1);
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.status().message().find("TPU9"), std::string::npos);
    EXPECT_NE(opened.status().message().find("CPU"), std::string::npos);
}

TEST(WeightedSums, OneRoundingPerOperationInPairOrder) {
    // Chosen so that another order, or a fused multiply-add, gives another float.
    const std::vector<float> y = {1e8f, 1.0f, -1e8f, 3.0f}, weight = {0.3f, 0.7f, 0.3f, 0.1f};
    const std::vector<uint32_t> group = {0, 0, 0, 1};
    std::vector<float> out(2);
    weighted_sums(y, weight, group, 1, out);
    volatile float a = y[0] * weight[0], b = y[1] * weight[1], c = y[2] * weight[2];
    volatile float sum = a + b;
    sum = sum + c;
    EXPECT_EQ(out[0], sum);
    EXPECT_EQ(out[1], 3.0f * 0.1f);
    weighted_sums(y, {}, group, 1, out);
    volatile float plain = y[0] + y[1];
    plain = plain + y[2];
    EXPECT_EQ(out[0], plain);
    EXPECT_EQ(out[1], 3.0f);
}

}  // namespace
}  // namespace linkcpp::moe
