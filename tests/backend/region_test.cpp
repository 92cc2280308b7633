// Every form of routed FFN that llama.cpp builds: the region is found whole, and its program, computed by the engine on
// the same weights, gives the graph's own bits.

#include "backend/region.h"

#include "backend/buffer.h"
#include "backend/finish.h"
#include "moe/engine.h"
#include "moe/expert_weights.h"

#include <functional>
#include <gtest/gtest.h>
#include <list>
#include <random>

namespace linkcpp::backend {
namespace {

using moe::Matrix;
using moe::Role;

constexpr int64_t n_embd = 64, n_ff = 96, n_expert = 6, n_used = 3;

/// The tensors of a graph: inputs, and expert weights that may be ours (to cut) or real (to compute).
struct Tensors {
    ggml_context* context = nullptr;
    ggml_tensor *x = nullptr, *expert = nullptr, *weight = nullptr;
    std::array<ggml_tensor*, 4> w{}, b{};
    int64_t n_selected = n_used;
    int64_t n_tokens = 0;
};

using Ffn = std::function<ggml_tensor*(const Tensors&)>;

ggml_tensor* matmul(const Tensors& t, Matrix matrix, ggml_tensor* a) {
    return ggml_mul_mat_id(t.context, t.w[static_cast<size_t>(matrix)], a, t.expert);
}
ggml_tensor* bias(const Tensors& t, Matrix matrix, ggml_tensor* a) {
    return ggml_add_id(t.context, a, t.b[static_cast<size_t>(matrix)], t.expert);
}

/// Weighting and the chain of additions, as llama.cpp's build_moe_ffn ends.
ggml_tensor* weigh_and_sum(const Tensors& t, ggml_tensor* rows, bool weighted, int64_t n_summed) {
    if (weighted) rows = ggml_mul(t.context, rows, t.weight);
    std::vector<ggml_tensor*> views;
    for (int64_t i = 0; i < n_summed; ++i)
        views.push_back(
            ggml_view_2d(t.context, rows, rows->ne[0], rows->ne[2], rows->nb[2], static_cast<size_t>(i) * rows->nb[1]));
    ggml_tensor* sum = views[0];
    for (int64_t i = 1; i < n_summed; ++i)
        sum = ggml_add(t.context, sum, views[static_cast<size_t>(i)]);
    return n_summed == 1 ? ggml_cont(t.context, sum) : sum;
}

ggml_tensor* swiglu(const Tensors& t) {
    ggml_tensor* up = matmul(t, Matrix::up, t.x);
    ggml_tensor* gate = matmul(t, Matrix::gate, t.x);
    return matmul(t, Matrix::down, ggml_swiglu_split(t.context, gate, up));
}

ggml_tensor* merged(const Tensors& t, bool with_bias) {
    ggml_tensor* both = matmul(t, Matrix::gate_up, t.x);
    if (with_bias) both = bias(t, Matrix::gate_up, both);
    const int64_t half = both->ne[0] / 2;
    ggml_tensor* gate = ggml_view_3d(t.context, both, half, both->ne[1], both->ne[2], both->nb[1], both->nb[2], 0);
    ggml_tensor* up = ggml_view_3d(t.context, both, half, both->ne[1], both->ne[2], both->nb[1], both->nb[2],
                                   static_cast<size_t>(half) * both->nb[0]);
    ggml_tensor* down = matmul(t, Matrix::down, ggml_geglu_split(t.context, gate, up));
    return with_bias ? bias(t, Matrix::down, down) : down;
}

ggml_tensor* swiglu_oai(const Tensors& t) {
    ggml_tensor* up = bias(t, Matrix::up, matmul(t, Matrix::up, t.x));
    ggml_tensor* gate = bias(t, Matrix::gate, matmul(t, Matrix::gate, t.x));
    return bias(t, Matrix::down, matmul(t, Matrix::down, ggml_swiglu_oai(t.context, gate, up, 1.702f, 7.0f)));
}

ggml_tensor* clamped(const Tensors& t) {
    ggml_tensor* up = ggml_clamp(t.context, matmul(t, Matrix::up, t.x), -0.5f, 0.5f);
    ggml_tensor* gate = ggml_clamp(t.context, ggml_silu(t.context, matmul(t, Matrix::gate, t.x)), -INFINITY, 0.5f);
    return matmul(t, Matrix::down, ggml_mul(t.context, gate, up));
}

ggml_tensor* situ(const Tensors& t) {
    ggml_tensor* up = matmul(t, Matrix::up, t.x);
    ggml_tensor* gate = matmul(t, Matrix::gate, t.x);
    ggml_tensor* act = ggml_scale(t.context, ggml_tanh(t.context, ggml_scale(t.context, gate, 0.5f)), 2.0f);
    act = ggml_mul(t.context, act, ggml_sigmoid(t.context, gate));
    return matmul(t, Matrix::down, ggml_mul(t.context, act, up));
}

ggml_tensor* no_gate(const Tensors& t, bool squared) {
    ggml_tensor* up = ggml_relu(t.context, matmul(t, Matrix::up, t.x));
    return matmul(t, Matrix::down, squared ? ggml_sqr(t.context, up) : up);
}

struct Form {
    const char* name;
    Ffn rows;
    bool weighted = true;
    bool x_per_pair = false;
    int64_t n_selected = n_used, n_summed = n_used;
};

/// Real weights for a layer, and tensors of the same names in our buffer type.
class RegionTest : public testing::TestWithParam<Form> {
  protected:
    static void SetUpTestSuite() { moe::load_ggml_backends(); }

    void SetUp() override {
        device = *moe::GgmlDevice::create(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU), 1);
        add(Matrix::up, n_embd, n_ff);
        add(Matrix::gate, n_embd, n_ff);
        add(Matrix::gate_up, n_embd, 2 * n_ff);
        add(Matrix::down, n_ff, n_embd);
        auto loaded = moe::ExpertWeights::load(*device, tensors, {});
        ASSERT_TRUE(loaded.ok()) << loaded.status().message();
        weights.emplace(std::move(*loaded));
        engine = std::move(*moe::Engine::load(device, tensors));
    }

    void add(Matrix matrix, int64_t n_in, int64_t n_out) {
        add_tensor({0, {matrix, Role::weight}}, n_in, n_out);
        add_tensor({0, {matrix, Role::bias}}, n_out, 1);
    }
    void add_tensor(moe::ExpertTensorName name, int64_t n0, int64_t n1) {
        auto& values = data.emplace_back(static_cast<size_t>(n0 * n1 * n_expert));
        for (float& value : values)
            value = normal(random) * 0.3f;
        moe::ExpertTensor tensor;
        tensor.name = name;
        tensor.type = GGML_TYPE_F32;
        tensor.ne = {n0, n1};
        tensor.slab_bytes = static_cast<uint64_t>(n0 * n1) * sizeof(float);
        tensor.data = as_bytes(std::span<const float>(values));
        tensors.push_back(tensor);
    }

    /// Builds the graph of `form`; `ours`: on weights without data in our buffer type.
    ggml_cgraph* build(const Form& form, int64_t n_tokens, bool ours) {
        Tensors t;
        t.context = ggml_init({256 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true});
        contexts.emplace_back(t.context);
        t.n_tokens = n_tokens;
        t.x = ggml_new_tensor_3d(t.context, GGML_TYPE_F32, n_embd, form.x_per_pair ? form.n_selected : 1, n_tokens);
        t.expert = ggml_new_tensor_2d(t.context, GGML_TYPE_I32, form.n_selected, n_tokens);
        t.weight = ggml_new_tensor_3d(t.context, GGML_TYPE_F32, 1, form.n_selected, n_tokens);
        for (ggml_tensor* input : {t.x, t.expert, t.weight})
            ggml_set_input(input);
        for (size_t m = 0; m < 4; ++m) {
            if (!ours) {
                t.w[m] = weights->layers().at(0).weight[m];
                t.b[m] = weights->layers().at(0).bias[m];
                continue;
            }
            const ggml_tensor* w = weights->layers().at(0).weight[m];
            const ggml_tensor* b = weights->layers().at(0).bias[m];
            t.w[m] = put_into_our_buffer(ggml_new_tensor_3d(t.context, w->type, w->ne[0], w->ne[1], w->ne[2]), w->name);
            t.b[m] = put_into_our_buffer(ggml_new_tensor_2d(t.context, b->type, b->ne[0], b->ne[1]), b->name);
        }
        ggml_tensor* rows = form.rows(t);
        ggml_tensor* out = form.n_summed > 0 ? weigh_and_sum(t, rows, form.weighted, form.n_summed) : rows;
        // Something that uses the result, as the residual stream does.
        ggml_tensor* after = ggml_sqr(t.context, ggml_norm(t.context, out, 1e-5f));
        ggml_set_output(after);
        ggml_cgraph* graph = ggml_new_graph(t.context);
        ggml_build_forward_expand(graph, t.weight);
        ggml_build_forward_expand(graph, after);
        ggml_set_output(out);  // keeps its memory, so that it can be compared
        allocators.emplace_back(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
        EXPECT_TRUE(ggml_gallocr_alloc_graph(allocators.back().get(), graph));
        fill(t, form);
        last_out = out;
        return graph;
    }
    ggml_tensor* put_into_our_buffer(ggml_tensor* tensor, const char* name) {
        ggml_set_name(tensor, name);
        if (!our_buffer) our_buffer.reset(ggml_backend_buft_alloc_buffer(expert_buffer_type(), 64 << 20));
        tensor->buffer = our_buffer.get();
        tensor->data = ggml_backend_buffer_get_base(our_buffer.get());
        return tensor;
    }
    static void fill(const Tensors& t, const Form& form) {
        std::minstd_rand generator(7);
        std::normal_distribution<float> value;
        auto* x = static_cast<float*>(t.x->data);
        for (int64_t i = 0; i < ggml_nelements(t.x); ++i)
            x[i] = value(generator);
        auto* w = static_cast<float*>(t.weight->data);
        for (int64_t i = 0; i < ggml_nelements(t.weight); ++i)
            w[i] = value(generator);
        auto* ids = static_cast<int32_t*>(t.expert->data);
        for (int64_t token = 0; token < t.n_tokens; ++token) {
            for (int64_t slot = 0; slot < form.n_selected; ++slot)
                ids[token * form.n_selected + slot] = static_cast<int32_t>((token * 5 + slot) % n_expert);
        }
    }

    /// What dispatch and workers do, without them.
    Status compute(const Region& region) {
        const auto widths = moe::check_program(region.program, engine->shapes(0));
        if (!widths.ok()) return widths.status();
        auto code = std::make_shared<dispatch::ProgramCode>();
        code->n_in = static_cast<uint32_t>(widths->n_in);
        code->n_out = static_cast<uint32_t>(widths->n_out);
        code->weighted = region.program.weighted;
        JobInputs inputs;
        dispatch::ExpertJob job;
        LINKCPP_TRY(make_job(region, code, n_expert, inputs, job));
        dispatch::JobResult result;
        result.rows.resize(job.n_pairs() * code->n_out);
        result.state.assign(job.n_pairs(), dispatch::RowState::raw);
        std::vector<uint32_t> row, expert;
        for (uint32_t pair = 0; pair < job.n_pairs(); ++pair) {
            row.push_back(job.x_per_pair ? pair : pair / job.n_used);
            expert.push_back(static_cast<uint32_t>(job.expert[pair]));
        }
        LINKCPP_TRY(engine->compute(0, region.program, job.x, row, expert, result.rows));
        write_output(region, job, result);
        return {};
    }

    std::minstd_rand random{1};
    std::normal_distribution<float> normal;
    std::list<std::vector<float>> data;
    std::vector<moe::ExpertTensor> tensors;
    std::shared_ptr<moe::GgmlDevice> device;
    std::optional<moe::ExpertWeights> weights;
    std::unique_ptr<moe::Engine> engine;
    std::vector<ggml_context_ptr> contexts;
    std::vector<ggml_gallocr_ptr> allocators;
    ggml_backend_buffer_ptr our_buffer;
    ggml_tensor* last_out = nullptr;
};

TEST_P(RegionTest, IsFoundWholeAndGivesTheGraphsOwnBits) {
    for (const int64_t n_tokens : {1, 2, 33}) {
        ggml_cgraph* real = build(GetParam(), n_tokens, false);
        ggml_tensor* expected = last_out;
        ASSERT_EQ(ggml_backend_graph_compute(device->backend(), real), GGML_STATUS_SUCCESS);

        ggml_cgraph* graph = build(GetParam(), n_tokens, true);
        ggml_tensor* got = last_out;
        size_t n_regions = 0;
        for (const GraphPart& part : cut_graph(graph)) {
            if (!part.is_region) continue;
            ++n_regions;
            EXPECT_EQ(part.region.out, got);
            EXPECT_EQ(part.region.n_summed, GetParam().n_summed);
            const Status status = compute(part.region);
            ASSERT_TRUE(status.ok()) << status.message();
        }
        ASSERT_EQ(n_regions, 1u) << "the FFN is one region";
        ASSERT_EQ(ggml_nbytes(got), ggml_nbytes(expected));
        EXPECT_EQ(std::memcmp(got->data, expected->data, ggml_nbytes(got)), 0) << n_tokens << " tokens";
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, RegionTest,
                         testing::Values(Form{"swiglu", swiglu},
                                         Form{"merged", [](const Tensors& in) { return merged(in, false); }},
                                         Form{"merged_bias", [](const Tensors& in) { return merged(in, true); }},
                                         Form{"swiglu_oai", swiglu_oai}, Form{"clamped", clamped}, Form{"situ", situ},
                                         Form{"relu", [](const Tensors& in) { return no_gate(in, false); }},
                                         Form{"relu_squared", [](const Tensors& in) { return no_gate(in, true); }},
                                         Form{"weights_before", swiglu, false, true},
                                         Form{"one_expert", swiglu, true, false, 1, 1},
                                         Form{"warm_up_selects_all_sums_few", swiglu, true, false, n_expert, 2},
                                         Form{"rows_only", swiglu, false, false, n_used, 0}),
                         [](const auto& test) { return test.param.name; });

/// An operation outside the vocabulary ends a region; what was multiplied before can still be computed elsewhere.
TEST_F(RegionTest, AnUnknownOperationEndsARegion) {
    const Form form{"elu", [](const Tensors& t) {
                        return matmul(t, Matrix::down, ggml_elu(t.context, matmul(t, Matrix::up, t.x)));
                    }};
    const auto parts = cut_graph(build(form, 2, true));
    std::vector<bool> kinds;
    for (const GraphPart& part : parts)
        kinds.push_back(part.is_region);
    EXPECT_EQ(kinds, (std::vector<bool>{true, false, true, false}));
    EXPECT_EQ(parts[0].region.program.steps.size(), 1u);
}

/// If somebody outside looks at an intermediate value, it must be computed: no region may swallow it.
TEST_F(RegionTest, AValueThatIsUsedOutsideIsNotSwallowed) {
    ggml_tensor* seen = nullptr;
    const Form form{"seen", [&](const Tensors& t) {
                        ggml_tensor* up = matmul(t, Matrix::up, t.x);
                        seen = up;
                        ggml_set_output(up);
                        return matmul(t, Matrix::down, ggml_relu(t.context, up));
                    }};
    const auto parts = cut_graph(build(form, 2, true));
    ASSERT_TRUE(parts[0].is_region);
    EXPECT_EQ(parts[0].region.out, seen);
    EXPECT_EQ(parts[0].region.program.steps.size(), 1u);
}

TEST_F(RegionTest, OnlyOperationsThatTraceBackToOurWeightsAreClaimed) {
    ggml_cgraph* graph = build(Form{"swiglu", swiglu}, 2, true);
    ggml_cgraph* real = build(Form{"swiglu", swiglu}, 2, false);
    const auto claimed = [](ggml_cgraph* g) {
        std::vector<std::string> names;
        for (int i = 0; i < ggml_graph_n_nodes(g); ++i) {
            if (continues_region(ggml_graph_node(g, i))) names.push_back(ggml_op_desc(ggml_graph_node(g, i)));
        }
        return names;
    };
    EXPECT_EQ(claimed(graph), (std::vector<std::string>{"SWIGLU", "MUL", "ADD", "ADD"}));
    EXPECT_TRUE(claimed(real).empty());
}

}  // namespace
}  // namespace linkcpp::backend
