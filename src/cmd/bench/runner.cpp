#include "cmd/bench/runner.h"

#include "backend/runtime.h"
#include "base/log.h"
#include "cmd/commands.h"
#include "cmd/interrupt.h"
#include "cmd/llama_session.h"
#include "cmd/values.h"

#include <fmt/format.h>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

namespace linkcpp::cmd::bench {

namespace {

constexpr uint32_t most_sequences = 8, context_per_sequence = 1024;

/// The buffer type of a stock RPC server. Errors: unavailable.
Result<ggml_backend_buffer_type_t> rpc_buffers(const std::string& endpoint) {
    const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    if (rpc == nullptr) return {Code::unavailable, "ggml's RPC backend (libggml-rpc.so) is not beside this program"};
    auto* add = reinterpret_cast<ggml_backend_reg_t (*)(const char*)>(
        ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
    const ggml_backend_reg_t server = add == nullptr ? nullptr : add(endpoint.c_str());
    if (server == nullptr || ggml_backend_reg_dev_count(server) == 0)
        return {Code::unavailable, "no RPC server answers at " + endpoint};
    ggml_backend_register(server);
    return ggml_backend_dev_buffer_type(ggml_backend_reg_dev_get(server, 0));
}

/// "blk\.(0|1|2)\.ffn_.*_exps\."
Result<std::string> experts_of(const std::string& layers) {
    const auto range = parse_range(layers, INT16_MAX);
    if (!range.ok()) return range.status();
    std::string list;
    for (int layer = range->first; layer < range->second; ++layer)
        list += (list.empty() ? "" : "|") + std::to_string(layer);
    return "blk\\.(" + list + ")\\.ffn_.*_exps\\.";
}

/// Random tokens, the same ones in every process.
class Tokens {
  public:
    explicit Tokens(size_t n_vocab) : pick_(0, static_cast<llama_token>(n_vocab) - 1) {}
    llama_token next() { return pick_(random_); }

  private:
    std::minstd_rand random_{1};
    std::uniform_int_distribution<llama_token> pick_;
};

/// One call of llama_decode: `n` tokens at `position` of each of `n_sequences`.
Result<double> step(LlamaSession& session, Tokens& tokens, int n, uint32_t n_sequences, int position) {
    llama_batch batch = llama_batch_init(n * static_cast<int>(n_sequences), 0, 1);
    for (uint32_t s = 0; s < n_sequences; ++s) {
        for (int i = 0; i < n; ++i) {
            const int at = batch.n_tokens++;
            batch.token[at] = tokens.next();
            batch.pos[at] = position + i;
            batch.n_seq_id[at] = 1;
            batch.seq_id[at][0] = static_cast<llama_seq_id>(s);
            batch.logits[at] = i == n - 1;
        }
    }
    const SteadyClock clock;
    const Instant begin = clock.now();
    const int error = session.compute(batch);
    const double took = milliseconds(clock.now() - begin);
    llama_batch_free(batch);
    if (error != 0) return {Code::unavailable, "the model could not be computed"};
    return took;
}

Result<std::string> measure(LlamaSession& session, size_t n_vocab, const std::string& question) {
    std::istringstream words(question);
    std::string what;
    int n = 0, pause_ms = 0;
    uint32_t batch = 1;
    words >> what >> n >> batch >> pause_ms;
    Tokens tokens(n_vocab);
    session.clear();
    const bool is_prompt = what == "prompt";
    std::string answer;
    for (int i = 0; i < (is_prompt ? 1 : n); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
        const auto took = step(session, tokens, is_prompt ? n : 1, is_prompt ? 1 : batch, i);
        if (!took.ok()) return took.status();
        answer += fmt::format("{}{:.4f}", answer.empty() ? "" : " ", *took);
    }
    session.rest();  // the next one to be measured may be another process
    return answer;
}

Status serve(const RunnerOptions& options) {
    const std::atomic<bool>& stop = catch_interrupts();
    auto config = backend_config(options.swarm, options.compute.threads());
    if (!config.ok()) return config.status();
    config->stop = &stop;
    set_llama_log(options.compute.verbose);
    LINKCPP_TRY(prepare_backends(options.swarm, std::move(*config)));
    std::vector<BufferOverride> overrides;
    if (!options.rpc.empty()) {
        const auto buffers = rpc_buffers(options.rpc);
        if (!buffers.ok()) return buffers.status();
        auto pattern = experts_of(options.rpc_layers);
        if (!pattern.ok()) return pattern.status();
        overrides.push_back({*pattern, *buffers});
    }
    auto model = LlamaModel::load(options.compute, stop, overrides);
    if (!model.ok()) return model.status();
    ModelOptions compute = options.compute;
    compute.n_sequences = most_sequences;
    compute.sleep_between_graphs = options.swarm.wanted() || !options.rpc.empty();
    auto session = LlamaSession::open(*model, compute, most_sequences * context_per_sequence, stop);
    if (!session.ok()) return session.status();
    if (const auto first = measure(*session, model->n_vocab(), "decode 2 1"); !first.ok()) return first.status();
    fmt::print("ready\n");
    std::fflush(stdout);
    for (std::string question; !stop && std::getline(std::cin, question);) {
        const auto answer = measure(*session, model->n_vocab(), question);
        if (!answer.ok()) return answer.status();
        fmt::print("{}\n", *answer);
        std::fflush(stdout);
    }
    return {};
}

}  // namespace

Result<Runner> Runner::start(const RunnerOptions& options, const std::atomic<bool>& stop) {
    std::vector<std::string> command = {"/proc/self/exe", "bench-runner", "--model", options.compute.model};
    const auto append = [&](const std::vector<std::string>& more) {
        command.insert(command.end(), more.begin(), more.end());
    };
    append(compute_arguments(options.compute));
    if (options.swarm.wanted()) append(swarm_arguments(options.swarm));
    if (!options.rpc.empty()) append({"--rpc", options.rpc, "--rpc-layers", options.rpc_layers});
    const SteadyClock clock;
    const Instant begin = clock.now();
    auto service = Service::start(command, !options.compute.verbose);
    if (!service.ok()) return service.status();
    Runner runner(std::move(*service));
    if (const auto ready = runner.service_.hear("ready", stop); !ready.ok()) return ready.status();
    runner.load_seconds_ = std::chrono::duration<double>(clock.now() - begin).count();
    return runner;
}

Result<std::vector<double>> Runner::ask(const std::string& question, const std::atomic<bool>& stop) {
    LINKCPP_TRY(service_.say(question));
    const auto line = service_.hear(stop);
    if (!line.ok()) return line.status();
    std::istringstream words(*line);
    std::vector<double> times;
    for (double time = 0; words >> time;)
        times.push_back(time);
    if (times.empty()) return {Code::corrupt, "the process of the benchmark measured nothing"};
    return times;
}

Result<std::vector<double>> Runner::decode(int n_steps, uint32_t batch, int pause_ms, const std::atomic<bool>& stop) {
    return ask(fmt::format("decode {} {} {}", n_steps, batch, pause_ms), stop);
}

Result<double> Runner::prompt(int n_tokens, const std::atomic<bool>& stop) {
    const auto times = ask(fmt::format("prompt {}", n_tokens), stop);
    if (!times.ok()) return times.status();
    return times->front();
}

}  // namespace linkcpp::cmd::bench

namespace linkcpp::cmd {

void add_bench_runner(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<bench::RunnerOptions>();
    CLI::App* runner = app.add_subcommand("bench-runner", "What bench runs; questions come on standard input");
    runner->group("");  // not in the help
    runner->add_option("--model", options->compute.model)->required();
    runner->add_option("--rpc", options->rpc);
    runner->add_option("--rpc-layers", options->rpc_layers);
    add_swarm_options(*runner, options->swarm, false);
    add_compute_options(*runner, options->compute);
    runner->callback([options, &exit_code] {
        const Status status = bench::serve(*options);
        if (!status.ok()) log_error("{}", status.message());
        exit_code = status.ok() ? 0 : exit_failed;
    });
}

}  // namespace linkcpp::cmd
