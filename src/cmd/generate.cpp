// linkcpp generate: decodes a text, the experts computed by workers or all of it here.

#include "cmd/commands.h"

#include "backend/runtime.h"
#include "base/log.h"
#include "cmd/compare.h"
#include "cmd/interrupt.h"
#include "cmd/llama_session.h"
#include "cmd/stats_file.h"
#include "cmd/swarm_options.h"
#include "cmd/utf8.h"

#include <fmt/format.h>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

constexpr const char* examples = R"(
Examples:
  linkcpp generate -m model.gguf -p "The capital of France is" -n 32
  linkcpp generate -m backbone.gguf --hub http://10.0.0.2:19000 -p "The capital of France is"
  linkcpp generate -m backbone.gguf --workers 10.0.0.5:50071,10.0.0.6:50071 -p "The capital of France is"
  echo "Who are you?" | linkcpp generate -m model.gguf --chat --temp 0.7
The text goes to standard output as it comes, everything else to standard error. Without --temp the most likely token
is taken each time; with the same model the text is then always the same, whoever computes it.
)";

struct Sampling {
    float temp = 0, top_p = 0.95f, min_p = 0.05f, repeat_penalty = 1;
    int top_k = 40;
    uint32_t seed = LLAMA_DEFAULT_SEED;
};

struct Options {
    ModelOptions compute;
    PromptOptions prompt;
    SwarmOptions swarm;
    Sampling sampling;
    int n_predict = 128;
    std::string stats;
    bool ignore_eos = false, json = false;
};

struct Answer {
    size_t n_prompt = 0;
    std::vector<llama_token> tokens;
    std::string text;
    std::string stopped_by;  ///< "length", "end of text", "context"
    Duration prompt_time{}, decode_time{};

    double prompt_tps() const { return per_second(n_prompt, prompt_time); }
    double tps() const { return per_second(tokens.empty() ? 0 : tokens.size() - 1, decode_time); }
    static double per_second(size_t count, Duration time) {
        return time.count() > 0 ? static_cast<double>(count) / std::chrono::duration<double>(time).count() : 0;
    }
};

struct FreeSampler {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using Sampler = std::unique_ptr<llama_sampler, FreeSampler>;

Sampler make_sampler(const Sampling& sampling, const LlamaModel& model) {
    Sampler chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(chain.get(), sampler); };
    if (sampling.repeat_penalty != 1) {
        constexpr int last_n = 64;
        add(llama_sampler_init_penalties(static_cast<int32_t>(model.n_vocab()), last_n, sampling.repeat_penalty, 0, 0));
    }
    if (sampling.temp <= 0) {
        add(llama_sampler_init_greedy());
        return chain;
    }
    add(llama_sampler_init_top_k(sampling.top_k));
    add(llama_sampler_init_top_p(sampling.top_p, 1));
    add(llama_sampler_init_min_p(sampling.min_p, 1));
    add(llama_sampler_init_temp(sampling.temp));
    add(llama_sampler_init_dist(sampling.seed));
    return chain;
}

/// Writes text to standard output as soon as it is whole characters.
class Output {
  public:
    explicit Output(bool silent) : silent_(silent) {}
    void add(std::string_view piece) { write(stream_.add(piece)); }
    /// A run that failed before it had any text leaves nothing behind.
    void finish(bool ok) {
        write(stream_.finish());
        if (ok || written_) write("\n");
    }

  private:
    void write(const std::string& text) {
        if (silent_ || text.empty()) return;
        written_ = true;
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    }

    Utf8Stream stream_;
    bool silent_, written_ = false;
};

Status decode(const Options& options, const LlamaModel& model, LlamaSession& session,
              const std::vector<llama_token>& prompt, const std::atomic<bool>& stop, Output& output, Answer& answer) {
    const Sampler sampler = make_sampler(options.sampling, model);
    // A repeat penalty looks at the prompt too.
    for (const llama_token token : prompt)
        llama_sampler_accept(sampler.get(), token);
    LINKCPP_TRY(session.decode(prompt));
    answer.n_prompt = prompt.size();
    answer.prompt_time = session.computing();
    answer.stopped_by = "length";
    const size_t room = session.n_ctx() - prompt.size();
    while (options.n_predict != 0) {
        if (stop) return {Code::unavailable, "interrupted"};
        const llama_token token = llama_sampler_sample(sampler.get(), session.get(), -1);
        if (model.ends_text(token) && !options.ignore_eos) {
            answer.stopped_by = "end of text";
            break;
        }
        answer.tokens.push_back(token);
        const std::string piece = model.piece(token);
        answer.text += piece;
        output.add(piece);
        if (options.n_predict > 0 && answer.tokens.size() >= static_cast<size_t>(options.n_predict)) break;
        if (answer.tokens.size() > room) {
            answer.stopped_by = "context";
            break;
        }
        LINKCPP_TRY(session.decode({&token, 1}));
        answer.decode_time = session.computing() - answer.prompt_time;
    }
    return {};
}

/// What to reserve: the prompt and the answer, as far as the model goes; an answer without end gets a fair piece.
Result<uint32_t> context_for(const Options& options, size_t n_prompt, uint32_t n_ctx_train) {
    constexpr size_t open_end = 4096;
    if (options.compute.n_ctx > 0) return context_size(options.compute.n_ctx, n_prompt, n_ctx_train);
    size_t needed = n_prompt + (options.n_predict < 0 ? open_end : static_cast<size_t>(options.n_predict));
    if (n_ctx_train > 0) needed = std::max<size_t>(n_prompt, std::min<size_t>(needed, n_ctx_train));
    return context_size(0, needed, n_ctx_train);
}

/// Everything that uses libllama; the backend's totals are complete once this has returned.
Status run_model(const Options& options, const std::atomic<bool>& stop, Answer& answer) {
    auto model = LlamaModel::load(options.compute, stop);
    if (!model.ok()) return model.status();
    auto prompt = prompt_tokens(*model, options.prompt);
    if (!prompt.ok()) return prompt.status();
    auto n_ctx = context_for(options, prompt->size(), model->n_ctx_train());
    if (!n_ctx.ok()) return n_ctx.status();
    ModelOptions compute = options.compute;
    compute.sleep_between_graphs = options.swarm.wanted();
    auto session = LlamaSession::open(*model, compute, *n_ctx, stop);
    if (!session.ok()) return session.status();
    Output output(options.json);
    const Status status = decode(options, *model, *session, *prompt, stop, output, answer);
    output.finish(status.ok());
    if (status.ok() && answer.stopped_by == "context") {
        log_warning("the context of {} tokens is full", session->n_ctx());
    }
    return status;
}

void print_json(const Options& options, const Answer& answer) {
    ordered_json record = {{"text", answer.text},
                           {"tokens", answer.tokens},
                           {"prompt_tokens", answer.n_prompt},
                           {"stopped_by", answer.stopped_by},
                           {"prompt_tps", answer.prompt_tps()},
                           {"tps", answer.tps()}};
    if (options.swarm.wanted()) record.update(totals_json(backend::Runtime::get().totals()));
    fmt::print("{}\n", record.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void print_summary(const Options& options, const Answer& answer) {
    std::string text = fmt::format("{} tokens of prompt at {:.1f} tok/s, {} generated at {:.1f} tok/s", answer.n_prompt,
                                   answer.prompt_tps(), answer.tokens.size(), answer.tps());
    if (options.swarm.wanted()) {
        const backend::Totals totals = backend::Runtime::get().totals();
        text += fmt::format("; round trip {:.2f} ms; {} rows by workers, {} here", milliseconds(totals.round_trip_p50),
                            totals.pairs_remote, totals.pairs_local);
        if (totals.failovers > 0) text += fmt::format(", {} failovers", totals.failovers);
    }
    log_info("{}", text);
    if (const std::string receipts = receipts_text(backend::Runtime::get().totals()); !receipts.empty())
        log_info("{}", receipts);
}

Status prepare(const Options& options, const std::atomic<bool>& stop) {
    auto config = backend_config(options.swarm, options.compute.threads());
    if (!config.ok()) return config.status();
    LINKCPP_TRY(check_model(options.compute.model, &*config));
    config->stop = &stop;
    if (!options.stats.empty()) {
        auto file = StatsFile::open(options.stats);
        if (!file.ok()) return file.status();
        config->on_layer = [stats = std::shared_ptr<StatsFile>(std::move(*file))](const backend::LayerStats& layer) {
            stats->write(layer);
        };
    }
    set_llama_log(options.compute.verbose);
    return prepare_backends(options.swarm, std::move(*config));
}

int run(const Options& options) {
    if (options.compute.verbose) set_log_level(LogLevel::debug);
    const std::atomic<bool>& stop = catch_interrupts();
    Answer answer;
    Status status = prepare(options, stop);
    if (status.ok()) status = run_model(options, stop, answer);
    if (stop) return exit_interrupted;
    if (!status.ok()) {
        log_error("{}", status.message());
        return exit_failed;
    }
    if (options.json) print_json(options, answer);
    print_summary(options, answer);
    // A text that did not reach its reader was not delivered.
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : exit_failed;
}

void add_sampling_options(CLI::App& command, Sampling& sampling) {
    command.add_option("--temp", sampling.temp, "Temperature (default: 0, the most likely token)")
        ->check(CLI::NonNegativeNumber);
    command.add_option("--top-k", sampling.top_k, "Of so many likeliest tokens")->capture_default_str();
    command.add_option("--top-p", sampling.top_p, "Of the likeliest tokens that together have this probability")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    command.add_option("--min-p", sampling.min_p, "Of tokens this likely, relative to the likeliest")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    command.add_option("--repeat-penalty", sampling.repeat_penalty, "For tokens among the last 64 (default: 1, none)")
        ->check(CLI::PositiveNumber);
    command.add_option("--seed", sampling.seed, "Of the random choices (default: another each time)");
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* generate = app.add_subcommand("generate", "Decode a text, with workers or without");
    generate->footer(examples);
    generate->add_option("-m,--model", options->compute.model, "The model, or its backbone file")
        ->required()
        ->type_name("MODEL.gguf");
    add_prompt_options(*generate, options->prompt);
    generate->add_option("-n,--predict", options->n_predict, "Tokens to generate; -1: until the text ends")
        ->check(CLI::Range(-1, 1 << 24))
        ->type_name("N")
        ->capture_default_str();
    generate->add_flag("--ignore-eos", options->ignore_eos, "Go on after the end of the text");
    add_swarm_options(*generate, options->swarm, false);
    add_compute_options(*generate, options->compute);
    add_sampling_options(*generate, options->sampling);
    generate->add_option("--stats", options->stats, "Write a line of JSON for every layer and batch")
        ->type_name("FILE");
    generate->add_flag("--json", options->json, "Print the text and its statistics as JSON, at the end");
    generate->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
