#include "cmd/model_options.h"

#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>
#include <unistd.h>

namespace linkcpp::cmd {

int ModelOptions::threads() const {
    if (n_threads > 0) return n_threads;
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void add_compute_options(CLI::App& command, ModelOptions& options) {
    command.add_option("-t,--threads", options.n_threads, "Threads that compute (default: one per core)")
        ->check(CLI::Range(1, 512))
        ->type_name("N");
    command.add_option("-c,--ctx-size", options.n_ctx, "Tokens of context (default: what prompt and answer need)")
        ->check(CLI::Range(8u, 1u << 24))
        ->type_name("N");
    command.add_option("-b,--batch-size", options.n_batch, "Tokens of a prompt that are handed over at once")
        ->check(CLI::Range(1u, 1u << 20))
        ->type_name("N")
        ->capture_default_str();
    command.add_option("--ub,--ubatch-size", options.n_ubatch, "Tokens of a prompt that are computed at once")
        ->check(CLI::Range(1u, 1u << 20))
        ->type_name("N")
        ->capture_default_str();
    command.add_option("--ngl,--gpu-layers", options.n_gpu_layers, "Layers whose dense part a GPU computes")
        ->check(CLI::Range(0, 100000))
        ->type_name("N")
        ->capture_default_str();
    command.add_option("--fa,--flash-attn", options.flash_attention, "Flash attention, as llama.cpp has it")
        ->check(CLI::IsMember({"auto", "on", "off"}))
        ->capture_default_str();
    command.add_flag("-v,--verbose", options.verbose, "Show the log of llama.cpp and our own details");
}

std::vector<std::string> compute_arguments(const ModelOptions& options) {
    std::vector<std::string> arguments = {
        "-b",    std::to_string(options.n_batch),      "--ub", std::to_string(options.n_ubatch),
        "--ngl", std::to_string(options.n_gpu_layers), "--fa", options.flash_attention};
    if (options.n_threads > 0) arguments.insert(arguments.end(), {"-t", std::to_string(options.n_threads)});
    if (options.n_ctx > 0) arguments.insert(arguments.end(), {"-c", std::to_string(options.n_ctx)});
    if (options.verbose) arguments.emplace_back("-v");
    return arguments;
}

void add_prompt_options(CLI::App& command, PromptOptions& options) {
    auto* text = command.add_option("-p,--prompt", options.text, "The prompt")->type_name("TEXT");
    command.add_option("-f,--file", options.file, "Read the prompt from a file ('-': standard input)")
        ->type_name("FILE")
        ->excludes(text);
    command.add_flag("--chat", options.chat, "Put the prompt into the model's chat template");
}

std::vector<std::string> prompt_arguments(const PromptOptions& options) {
    std::vector<std::string> arguments;
    // One word, so that a prompt that begins with a dash is not taken for an option.
    if (!options.text.empty()) arguments.push_back("--prompt=" + options.text);
    if (!options.file.empty()) arguments.push_back("--file=" + options.file);
    if (options.chat) arguments.emplace_back("--chat");
    return arguments;
}

Result<std::string> read_prompt(const PromptOptions& options) {
    std::string prompt = options.text;
    if (prompt.empty()) {
        const bool from_input = options.file.empty() || options.file == "-";
        if (options.file.empty() && isatty(STDIN_FILENO) == 1) {
            return {Code::invalid_argument, "there is no prompt; give one with -p TEXT, -f FILE or on standard input"};
        }
        std::ifstream file;
        if (!from_input) file.open(options.file, std::ios::binary);
        if (!from_input && !file) return {Code::not_found, options.file + ": the file with the prompt cannot be read"};
        std::istream& source = from_input ? std::cin : file;
        prompt.assign(std::istreambuf_iterator<char>(source), {});
        if (source.bad()) return {Code::io, "the prompt could not be read to its end"};
        if (prompt.ends_with('\n')) prompt.pop_back();
    }
    if (prompt.empty()) return {Code::invalid_argument, "the prompt is empty"};
    return prompt;
}

Result<uint32_t> context_size(uint32_t requested, size_t needed, uint32_t n_ctx_train) {
    // llama.cpp gives memory to a context in steps of 256 tokens.
    constexpr size_t step = 256;
    const size_t limit = requested > 0 ? requested : n_ctx_train > 0 ? n_ctx_train : UINT32_MAX - step;
    if (needed > limit) {
        return {Code::invalid_argument, fmt::format("prompt and answer need {} tokens of context, but {} {}", needed,
                                                    requested > 0 ? "-c allows" : "the model was made for", limit)};
    }
    return static_cast<uint32_t>(requested > 0 ? requested : std::min(limit, (needed + step - 1) / step * step));
}

}  // namespace linkcpp::cmd
