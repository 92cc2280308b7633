// Both ends of a trace: the process that records it, and the one that asks for it.

#include "cmd/trace.h"

#include "backend/runtime.h"
#include "base/log.h"
#include "cmd/child.h"
#include "cmd/commands.h"
#include "cmd/compare.h"
#include "cmd/interrupt.h"
#include "cmd/llama_session.h"
#include "cmd/memory_use.h"
#include "moe/engine.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <iostream>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

/// One run over prompt and answer.
struct Pass {
    std::vector<llama_token> tokens;
    Duration prompt_time{}, decode_time{};
};

Status write_all(std::span<const float> values) {
    const char* data = reinterpret_cast<const char*>(values.data());
    for (size_t done = 0; done < values.size_bytes();) {
        const ssize_t size = write(child_file, data + done, values.size_bytes() - done);
        if (size < 0 && errno != EINTR) {
            return {Code::io, std::string("the logits cannot be written: ") + std::strerror(errno)};
        }
        if (size > 0) done += static_cast<size_t>(size);
    }
    return {};
}

/// Takes the likeliest token each time; goes on with it, or with those of `follow`.
Status run_pass(LlamaSession& session, const std::vector<llama_token>& prompt, size_t n_predict,
                const std::vector<llama_token>* follow, Pass& pass) {
    if (lseek(child_file, 0, SEEK_SET) != 0) return {Code::io, "there is no file for the logits"};
    session.clear();
    const Instant before = session.computing();
    llama_token next = 0;
    const auto on_logits = [&](std::span<const float> logits) {
        next = static_cast<llama_token>(greedy_token(logits));
        return write_all(logits);
    };
    LINKCPP_TRY(session.decode(prompt, on_logits));
    pass.prompt_time = session.computing() - before;
    for (;;) {
        pass.tokens.push_back(next);
        if (pass.tokens.size() >= n_predict) break;
        const llama_token token = follow != nullptr ? (*follow)[pass.tokens.size() - 1] : next;
        LINKCPP_TRY(session.decode({&token, 1}, on_logits));
    }
    pass.decode_time = session.computing() - before - pass.prompt_time;
    return {};
}

/// Everything that uses libllama; the backend's totals are complete once this has returned.
Status run_model(const TraceOptions& options, const std::vector<llama_token>& follow, const std::atomic<bool>& stop,
                 Trace& trace) {
    auto model = LlamaModel::load(options.compute, stop);
    if (!model.ok()) return model.status();
    auto prompt = prompt_tokens(*model, options.prompt);
    if (!prompt.ok()) return prompt.status();
    const auto n_predict = static_cast<size_t>(options.n_predict);
    auto n_ctx = context_size(options.compute.n_ctx, prompt->size() + n_predict, model->n_ctx_train());
    if (!n_ctx.ok()) return n_ctx.status();
    auto session = LlamaSession::open(*model, options.compute, *n_ctx, stop);
    if (!session.ok()) return session.status();

    // Connections are made and pages are read with the first token, which is no speed of either side.
    LINKCPP_TRY(session->decode(std::span(*prompt).first(1)));
    Pass pass;
    LINKCPP_TRY(run_pass(*session, *prompt, n_predict, nullptr, pass));
    // As long as the tokens are the same, this run was along the reference's anyway.
    if (!follow.empty() && follow != pass.tokens) {
        if (follow.size() != n_predict) return {Code::invalid_argument, "the reference has another number of tokens"};
        Pass again;
        LINKCPP_TRY(run_pass(*session, *prompt, n_predict, &follow, again));
        trace.followed = true;
    }
    trace.prompt.assign(prompt->begin(), prompt->end());
    trace.tokens.assign(pass.tokens.begin(), pass.tokens.end());
    for (const llama_token token : pass.tokens)
        trace.pieces.push_back(model->piece(token));
    trace.text = model->text(pass.tokens);
    trace.n_vocab = model->n_vocab();
    const auto per_second = [](size_t count, Duration time) {
        return time.count() > 0 ? static_cast<double>(count) / std::chrono::duration<double>(time).count() : 0;
    };
    trace.prompt_tps = per_second(prompt->size(), pass.prompt_time);
    trace.tps = per_second(n_predict - 1, pass.decode_time);
    trace.rss_mb = peak_resident_mb();
    return {};
}

Status record(const TraceOptions& options, bool with_follow, Trace& trace) {
    const std::atomic<bool>& stop = catch_interrupts();
    if (options.compute.verbose) set_log_level(LogLevel::debug);
    std::vector<llama_token> follow;
    for (llama_token token = 0; with_follow && std::cin >> token;)
        follow.push_back(token);
    auto config = backend_config(options.swarm, options.compute.threads());
    if (!config.ok()) return config.status();
    LINKCPP_TRY(check_model(options.compute.model, &*config));
    set_llama_log(options.compute.verbose);
    config->stop = &stop;
    LINKCPP_TRY(prepare_backends(options.swarm, std::move(*config)));
    LINKCPP_TRY(run_model(options, follow, stop, trace));
    trace.totals = backend::Runtime::get().totals();
    auto numeric_class = moe::numeric_class("");
    if (numeric_class.ok()) trace.numeric_class = *numeric_class;
    return {};
}

int run(const TraceOptions& options, bool with_follow) {
    Trace trace;
    if (const Status status = record(options, with_follow, trace); !status.ok()) {
        log_error("{}", status.message());
        return exit_failed;
    }
    fmt::print("{}\n", to_json(trace).dump(-1, ' ', false, ordered_json::error_handler_t::replace));
    return std::fflush(stdout) == 0 ? 0 : exit_failed;
}

}  // namespace

ordered_json to_json(const Trace& trace) {
    return {{"prompt", trace.prompt},
            {"tokens", trace.tokens},
            {"pieces", trace.pieces},
            {"text", trace.text},
            {"n_vocab", trace.n_vocab},
            {"followed", trace.followed},
            {"numeric_class", trace.numeric_class},
            {"prompt_tps", trace.prompt_tps},
            {"tps", trace.tps},
            {"rss_mb", trace.rss_mb},
            {"totals", totals_json(trace.totals)}};
}

Result<Trace> trace_from_json(const std::string& text) {
    try {
        const auto json = ordered_json::parse(text);
        Trace trace;
        json.at("prompt").get_to(trace.prompt);
        json.at("tokens").get_to(trace.tokens);
        json.at("pieces").get_to(trace.pieces);
        json.at("text").get_to(trace.text);
        json.at("n_vocab").get_to(trace.n_vocab);
        json.at("followed").get_to(trace.followed);
        json.at("numeric_class").get_to(trace.numeric_class);
        json.at("prompt_tps").get_to(trace.prompt_tps);
        json.at("tps").get_to(trace.tps);
        json.at("rss_mb").get_to(trace.rss_mb);
        trace.totals = totals_from_json(json.at("totals"));
        return trace;
    } catch (const std::exception& error) {
        return {Code::corrupt, std::string("the process gave no trace: ") + error.what()};
    }
}

Result<Trace> record_trace(const TraceOptions& options, const std::vector<int32_t>* follow, int logits,
                           const std::atomic<bool>& stop) {
    std::vector<std::string> arguments = {"trace", "--model", options.compute.model, "-n",
                                          std::to_string(options.n_predict)};
    const auto append = [&](const std::vector<std::string>& more) {
        arguments.insert(arguments.end(), more.begin(), more.end());
    };
    append(compute_arguments(options.compute));
    append(prompt_arguments(options.prompt));
    if (options.swarm.wanted()) append(swarm_arguments(options.swarm));
    std::string input;
    if (follow != nullptr) {
        append({"--follow"});
        for (const int32_t token : *follow)
            input += std::to_string(token) + "\n";
    }
    auto output = run_self(arguments, input, logits, stop);
    if (!output.ok()) return output.status();
    return trace_from_json(*output);
}

void add_trace(CLI::App& app, int& exit_code) {
    struct Options : TraceOptions {
        bool follow = false;
    };
    auto options = std::make_shared<Options>();
    CLI::App* trace = app.add_subcommand("trace", "What verify runs; JSON on standard output, logits to descriptor 3");
    trace->group("");  // not in the help
    trace->add_option("--model", options->compute.model)->required();
    trace->add_option("-n", options->n_predict)->check(CLI::Range(1, 1 << 24));
    trace->add_flag("--follow", options->follow, "Tokens of the reference come on standard input");
    add_prompt_options(*trace, options->prompt);
    add_swarm_options(*trace, options->swarm, false);
    add_compute_options(*trace, options->compute);
    trace->callback([options, &exit_code] { exit_code = run(*options, options->follow); });
}

}  // namespace linkcpp::cmd
