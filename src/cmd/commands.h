#pragma once
// The subcommands of `linkcpp`. Each add_… registers one with its options; when the user chose it, it runs while the
// command line is parsed and leaves its exit code: 0 done, 1 failed (with a sentence on standard error). A command line
// that makes no sense ends with 2 before anything runs.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace linkcpp::cmd {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr int exit_interrupted = 130;

void add_inspect(CLI::App& app, int& exit_code);
void add_slice(CLI::App& app, int& exit_code);
void add_pull(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
/// `for_server`: the words of the command line that are not ours (see split_serve_words).
void add_serve(CLI::App& app, int& exit_code, std::vector<std::string> for_server);
void add_trace(CLI::App& app, int& exit_code);
void add_credits(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
/// What bench runs in processes of their own.
void add_bench_runner(CLI::App& app, int& exit_code);

/// Moves what `serve` does not know out of its command line (`words`, "serve" first) to the words for llama-server, in
/// their order: all but our options and their values, and everything behind "--".
std::vector<std::string> split_serve_words(std::vector<std::string>& words);

}  // namespace linkcpp::cmd
