// linkcpp-numerics: computes the same rows here and at a worker, and tells how far apart they are: for every layer of a slice, each
// matrix alone and the whole gated FFN, one token at a time (as in a decode) and many (as in a prompt).

#include "differences.h"
#include "dispatch/dispatcher.h"
#include "moe/engine.h"
#include "net/tcp.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <ggml.h>
#include <random>

namespace {

using namespace linkcpp;
using nlohmann::ordered_json;

struct Options {
    std::string slice, worker;
    uint32_t n_tokens = 32;
    int n_threads = 1;
};

/// Activations of a residual stream have a few channels that are much larger than the rest.
std::vector<float> inputs(size_t n_in, size_t n_rows, bool outliers, std::minstd_rand& random) {
    std::normal_distribution<float> normal;
    std::vector<float> x(n_in * n_rows);
    for (size_t i = 0; i < x.size(); ++i)
        x[i] = normal(random) * (outliers && i % n_in % 97 == 5 ? 30.0f : 1.0f);
    return x;
}

std::vector<std::pair<std::string, moe::Program>> programs(const moe::LayerShapes& shapes) {
    std::vector<std::pair<std::string, moe::Program>> list;
    const auto has = [&](moe::Matrix matrix) { return shapes.matrix[static_cast<size_t>(matrix)].present; };
    const std::pair<const char*, moe::Matrix> names[] = {
        {"gate", moe::Matrix::gate}, {"up", moe::Matrix::up}, {"down", moe::Matrix::down}};
    for (const auto& [name, matrix] : names)
        if (has(matrix)) list.push_back({name, {false, {{moe::Op::matmul, matrix, 0, 0, {0, 0}}}}});
    if (list.size() == 3) {
        list.push_back({"ffn",
                        {false,
                         {{moe::Op::matmul, moe::Matrix::gate, 0, 0, {0, 0}},
                          {moe::Op::matmul, moe::Matrix::up, 0, 0, {0, 0}},
                          {moe::Op::swiglu, moe::Matrix::up, 1, 2, {0, 0}},
                          {moe::Op::matmul, moe::Matrix::down, 3, 0, {0, 0}}}}});
    }
    return list;
}

class Comparison {
  public:
    Comparison(moe::Engine& engine, dispatch::Dispatcher& worker, const Options& options)
        : engine_(engine), worker_(worker), options_(options) {}

    /// `per_job`: tokens that are computed at once.
    Result<numerics::Rows> rows(int layer, const moe::Program& program, uint32_t per_job, bool outliers) {
        const auto shape = moe::check_program(program, engine_.shapes(layer));
        if (!shape.ok()) return shape.status();
        auto code = std::make_shared<dispatch::ProgramCode>();
        *code = {moe::encode_program(program), static_cast<uint32_t>(shape->n_in), static_cast<uint32_t>(shape->n_out),
                 false};
        std::minstd_rand random(7);
        numerics::Rows all;
        all.n_out = code->n_out;
        for (uint32_t token = 0; token < options_.n_tokens; token += per_job) {
            const uint32_t n = std::min(per_job, options_.n_tokens - token);
            const auto x = inputs(code->n_in, n, outliers, random);
            LINKCPP_TRY(add(layer, program, code, x, n, token, random, all));
        }
        return all;
    }

  private:
    Status add(int layer, const moe::Program& program, std::shared_ptr<const dispatch::ProgramCode> code,
               const std::vector<float>& x, uint32_t n_tokens, uint32_t first_token, std::minstd_rand& random,
               numerics::Rows& all) {
        const auto n_expert = static_cast<uint32_t>(engine_.n_expert());
        const uint32_t n_used = std::min(8u, n_expert);
        std::vector<int32_t> order(n_expert), ids;
        for (uint32_t i = 0; i < n_expert; ++i)
            order[i] = static_cast<int32_t>(i);
        std::vector<uint32_t> x_row, expert;
        for (uint32_t token = 0; token < n_tokens; ++token) {
            std::shuffle(order.begin(), order.end(), random);
            for (uint32_t slot = 0; slot < n_used; ++slot) {
                ids.push_back(order[slot]);
                x_row.push_back(token);
                expert.push_back(static_cast<uint32_t>(order[slot]));
                all.token.push_back(first_token + token);
                all.expert.push_back(expert.back());
            }
        }
        std::vector<float> here(x_row.size() * code->n_out);
        LINKCPP_TRY(engine_.compute(layer, program, x, x_row, expert, here));
        dispatch::ExpertJob job;
        job.layer = static_cast<uint32_t>(layer);
        job.program = std::move(code);
        job.n_tokens = n_tokens;
        job.n_used = n_used;
        job.want_sums = false;
        job.x = x;
        job.expert = ids;
        dispatch::JobResult result;
        LINKCPP_TRY(worker_.run(job, result));
        all.here.insert(all.here.end(), here.begin(), here.end());
        all.there.insert(all.there.end(), result.rows.begin(), result.rows.end());
        return {};
    }

    moe::Engine& engine_;
    dispatch::Dispatcher& worker_;
    const Options& options_;
};

std::string type_of(const moe::SliceFile& slice, int layer, const std::string& program) {
    std::string types;
    for (const moe::ExpertTensor& tensor : slice.tensors()) {
        if (tensor.name.layer != layer || tensor.name.kind.role != moe::Role::weight) continue;
        const std::string name = tensor.name.str();
        const std::string type = ggml_type_name(static_cast<ggml_type>(tensor.type));
        if (name.find("ffn_" + program + "_") != std::string::npos) return type;
        if (types.find(type) == std::string::npos) types += (types.empty() ? "" : "+") + type;
    }
    return types;
}

Result<ordered_json> compare(const Options& options, net::TcpNetwork& network,
                             std::unique_ptr<dispatch::Dispatcher>& worker) {
    const auto address = net::Address::parse(options.worker);
    if (!address.ok()) return address.status();
    const auto device = moe::Device::open("", options.n_threads);
    if (!device.ok()) return device.status();
    const auto slice = moe::SliceFile::open(options.slice);
    if (!slice.ok()) return slice.status();
    const auto engine = moe::Engine::load(*device, slice->tensors());
    if (!engine.ok()) return engine.status();
    dispatch::Settings settings;
    settings.build = "linkcpp-numerics";
    settings.numeric_class = (*device)->numeric_class();
    settings.audit_share = 0;
    settings.compute_min = std::chrono::minutes(10);  // an emulated processor is slow
    network.loop().run(
        [&] { worker = std::make_unique<dispatch::Dispatcher>(network, settings, std::vector{*address}, nullptr); });
    ordered_json list = ordered_json::array();
    Comparison comparison(**engine, *worker, options);
    for (const int layer : (*engine)->layers()) {
        for (const auto& [name, program] : programs((*engine)->shapes(layer))) {
            for (const auto& [batch, outliers] : {std::pair{1u, false}, {1u, true}, {options.n_tokens, false}}) {
                const auto rows = comparison.rows(layer, program, batch, outliers);
                if (!rows.ok()) return rows.status();
                ordered_json entry = {{"layer", layer},
                                      {"type", type_of(*slice, layer, name)},
                                      {"program", name},
                                      {"tokens_at_once", batch},
                                      {"outliers", outliers}};
                entry.update(numerics::describe(*rows));
                list.push_back(std::move(entry));
            }
        }
    }
    std::string theirs;
    network.loop().run([&] {
        for (const auto& peer : worker->stats().peers)
            theirs = peer.numeric_class;
    });
    return ordered_json{{"numeric_class", settings.numeric_class}, {"worker_class", theirs}, {"results", list}};
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Computes the same rows here and at a worker, and tells how far apart they are.", "linkcpp-numerics");
    app.add_option("--slice", options.slice, "The slice that the worker serves")->required()->check(CLI::ExistingFile);
    app.add_option("--worker", options.worker, "HOST:PORT")->required();
    app.add_option("--tokens", options.n_tokens, "Tokens of every comparison, eight rows each")
        ->check(CLI::Range(1, 4096));
    app.add_option("--threads", options.n_threads, "Threads that compute here");
    CLI11_PARSE(app, argc, argv);
    moe::silence_ggml();
    net::TcpNetwork network;
    std::unique_ptr<dispatch::Dispatcher> worker;
    const auto result = compare(options, network, worker);
    network.loop().run([&] { worker.reset(); });
    network.stop();
    if (!result.ok()) {
        fmt::print(stderr, "linkcpp-numerics: {}\n", result.status().message());
        return 1;
    }
    fmt::print("{}\n", result->dump(1));
    return 0;
}
