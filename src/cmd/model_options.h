#pragma once
// The options that every command has that runs a model: which model, how it is computed, what is asked of it. The same
// options can be written out again, for a process that runs the same thing.

#include "base/status.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace linkcpp::cmd {

struct ModelOptions {
    std::string model;
    int n_threads = 0;   ///< 0: one per core
    uint32_t n_ctx = 0;  ///< 0: what prompt and answer need
    uint32_t n_batch = 2048, n_ubatch = 512;
    uint32_t n_sequences = 1;  ///< that share the context; no option, commands know
    int n_gpu_layers = 0;
    std::string flash_attention = "auto";  ///< "auto", "on", "off"
    bool verbose = false;
    /// Threads that wait for the next graph sleep at once, instead of looking for it busily (llama.cpp's --poll 0): for runs
    /// in which somebody else computes meanwhile, perhaps on the same processor. No option, commands know.
    bool sleep_between_graphs = false;

    int threads() const;  ///< the real number
};

struct PromptOptions {
    std::string text, file;
    bool chat = false;  ///< put it into the model's chat template
};

/// All but the model's path, which commands name in their own ways.
void add_compute_options(CLI::App& command, ModelOptions& options);
std::vector<std::string> compute_arguments(const ModelOptions& options);

/// -p and -f; one excludes the other.
void add_prompt_options(CLI::App& command, PromptOptions& options);
std::vector<std::string> prompt_arguments(const PromptOptions& options);
/// The prompt's text: given, from the file, or from standard input when neither was named ("-" names it too). The line
/// break that ends a file is not part of the prompt.
Result<std::string> read_prompt(const PromptOptions& options);

/// Tokens of context to ask for. `needed`: prompt and answer; `requested`: what the user said, 0: nothing;
/// `n_ctx_train`: what the model was trained for, 0: unknown. Errors: invalid_argument when it cannot fit.
Result<uint32_t> context_size(uint32_t requested, size_t needed, uint32_t n_ctx_train);

}  // namespace linkcpp::cmd
