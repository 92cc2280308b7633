// The command line of the backbone side: looks into models, cuts slices, decodes with workers and proves that it is exact.

#include "base/log.h"
#include "cmd/commands.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

namespace {

/// llama.cpp's own spelling of two options, which hands remember, is understood as well: one dash before long names.
void use_long_options(std::vector<std::string>& words) {
    for (std::string& word : words) {
        if (word == "-ngl" || word == "-ub") word.insert(0, "-");
    }
}

/// The first word that is no option should be a command; CLI11 says only that one is missing.
std::string unknown_command(CLI::App& app, const std::vector<std::string>& words) {
    if (words.empty() || words[0].starts_with('-')) return "";
    const auto commands = app.get_subcommands([](CLI::App*) { return true; });
    const bool known =
        std::any_of(commands.begin(), commands.end(), [&](CLI::App* command) { return command->check_name(words[0]); });
    return known ? "" : words[0];
}

}  // namespace

int main(int argc, char** argv) {
    using namespace linkcpp::cmd;
    // A file size limit is then an error of write() that is reported, not the end of the process.
    std::signal(SIGXFSZ, SIG_IGN);

    CLI::App app("linkcpp: run a mixture-of-experts model on devices that could never hold it alone", "linkcpp");
    app.set_version_flag("--version", LINKCPP_VERSION);
    app.require_subcommand(1);
    int exit_code = 0;
    std::vector<std::string> words(argv + 1, argv + argc), for_server;
    if (!words.empty() && words[0] == "serve")
        for_server = split_serve_words(words);
    else
        use_long_options(words);
    add_inspect(app, exit_code);
    add_slice(app, exit_code);
    add_pull(app, exit_code);
    add_generate(app, exit_code);
    add_verify(app, exit_code);
    add_serve(app, exit_code, std::move(for_server));
    add_doctor(app, exit_code);
    add_bench(app, exit_code);
    add_trace(app, exit_code);
    add_credits(app, exit_code);
    add_bench_runner(app, exit_code);
    if (const std::string word = unknown_command(app, words); !word.empty()) {
        linkcpp::log_error("'{}' is not a command of linkcpp; see linkcpp --help", word);
        return exit_usage;
    }
    try {
        app.parse(
            std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 wants them from the last to the first
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    return exit_code;
}
