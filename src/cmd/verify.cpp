// linkcpp verify: runs a model twice, alone on this machine and with workers, and compares every token and every logit.

#include "cmd/child.h"
#include "cmd/commands.h"
#include "cmd/interrupt.h"
#include "cmd/verification.h"

#include "base/log.h"

#include <csignal>
#include <fmt/format.h>
#include <fstream>

namespace linkcpp::cmd {

namespace {

constexpr const char* examples = R"(
Examples:
  linkcpp verify -m model.gguf --workers 10.0.0.5:50071,10.0.0.6:50071
  linkcpp verify -m model.gguf --hub http://10.0.0.2:19000
  linkcpp verify -m model.gguf --backbone backbone.gguf --fallback none --workers 10.0.0.5:50071 -n 64 --json
Each run has a process of its own; the local one knows nothing of the workers. Ends with 0 if all tokens are identical
(and all logits too, bit by bit, in exact mode with workers that compute with the same instructions as this machine).
)";

constexpr const char* default_prompt = "The capital of France is";

struct Options {
    TraceOptions trace;  ///< the model is the full one
    std::string backbone, record;
    bool json = false;
};

/// One of the two runs.
struct Run {
    UnnamedFile logits;
    Trace trace;
};

Result<Run> run_trace(const TraceOptions& options, const char* which, const std::vector<int32_t>* follow,
                      const std::atomic<bool>& stop) {
    auto logits = UnnamedFile::create();
    if (!logits.ok()) return logits.status();
    log_info("{}: {} tokens", which, options.n_predict);
    auto trace = record_trace(options, follow, logits->descriptor(), stop);
    if (!trace.ok()) return trace.status().in(which);
    return Run{std::move(*logits), std::move(*trace)};
}

Result<Verification> verify(const Options& options, const std::atomic<bool>& stop) {
    TraceOptions local = options.trace, swarm = options.trace;
    local.swarm = {};
    if (!options.backbone.empty()) swarm.compute.model = options.backbone;
    LINKCPP_TRY(check_model(local.compute.model, nullptr));
    auto reference = run_trace(local, "the local run", nullptr, stop);
    if (!reference.ok()) return reference.status();
    auto run = run_trace(swarm, "the run with workers", &reference->trace.tokens, stop);
    if (!run.ok()) return run.status();
    auto verification = compare_traces(std::move(reference->trace), reference->logits.descriptor(),
                                       std::move(run->trace), run->logits.descriptor());
    if (!verification.ok()) return verification.status();
    verification->prompt = options.trace.prompt.text;
    const auto config = backend_config(swarm.swarm, 0);
    if (!config.ok()) return config.status();
    verification->exact_mode = config->for_file(swarm.compute.model).split == dispatch::SplitMode::exact;
    return verification;
}

Status save(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::trunc);
    file << text << '\n';
    file.close();
    return file ? Status() : Status(Code::io, path + " cannot be written");
}

/// Both runs get the prompt as text: they have nothing to read it from.
Status fix_prompt(PromptOptions& prompt) {
    if (prompt.text.empty() && prompt.file.empty()) prompt.text = default_prompt;
    auto text = read_prompt(prompt);
    if (!text.ok()) return text.status();
    prompt.text = std::move(*text);
    prompt.file.clear();
    // The longest word of a command line is 128 KiB on Linux.
    if (prompt.text.size() > 120000) return {Code::unsupported, "verify takes prompts of at most 120000 bytes"};
    return {};
}

int run(Options& options) {
    if (options.trace.compute.verbose) set_log_level(LogLevel::debug);
    const std::atomic<bool>& stop = catch_interrupts();
    Status status = fix_prompt(options.trace.prompt);
    std::optional<Verification> verification;
    if (status.ok()) {
        auto result = verify(options, stop);
        if (result.ok()) {
            verification = std::move(*result);
            if (!options.record.empty()) status = save(options.record, report_json(*verification));
        } else {
            status = result.status();
        }
    }
    if (stop) return exit_interrupted;
    if (!status.ok()) {
        log_error("{}", status.message());
        return exit_failed;
    }
    fmt::print("{}", options.json ? report_json(*verification) + "\n" : report_text(*verification));
    if (const auto failure = verification->failure()) {
        log_error("not verified: {}", *failure);
        return exit_failed;
    }
    return std::fflush(stdout) == 0 ? 0 : exit_failed;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* verify = app.add_subcommand("verify", "Compare a run with workers to a local one, token by token");
    verify->footer(examples);
    verify->add_option("-m,--model", options->trace.compute.model, "The full model")
        ->required()
        ->type_name("FULL.gguf");
    verify->add_option("--backbone", options->backbone, "What the run with workers loads (default: the full model)")
        ->type_name("BACKBONE.gguf");
    add_prompt_options(*verify, options->trace.prompt);
    verify->add_option("-n,--predict", options->trace.n_predict, "Tokens to compare; the end of the text is ignored")
        ->check(CLI::Range(1, 1 << 24))
        ->type_name("N")
        ->capture_default_str();
    add_swarm_options(*verify, options->trace.swarm, true);
    add_compute_options(*verify, options->trace.compute);
    verify->add_flag("--json", options->json, "Print the result as JSON");
    verify->add_option("--record", options->record, "Also write the JSON to a file")->type_name("FILE");
    verify->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
