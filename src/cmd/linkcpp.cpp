// The command line of the backbone side: looks into models, cuts slices, decodes with workers and proves that it is exact.

#include "cmd/commands.h"

#include <csignal>
#include <string_view>

namespace {

/// llama.cpp's own spelling of two options, which hands remember, is understood as well: one dash before long names.
/// In the order in which CLI11 wants them: from the last to the first.
std::vector<std::string> as_long_options(int argc, char** argv) {
    std::vector<std::string> words;
    for (int i = argc - 1; i > 0; --i) {
        const std::string_view word = argv[i];
        words.push_back((word == "-ngl" || word == "-ub" ? "-" : "") + std::string(word));
    }
    return words;
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
    add_inspect(app, exit_code);
    add_slice(app, exit_code);
    add_generate(app, exit_code);
    add_verify(app, exit_code);
    add_trace(app, exit_code);
    try {
        app.parse(as_long_options(argc, argv));
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    return exit_code;
}
