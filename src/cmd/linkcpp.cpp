// The command line of the backbone side: looks into models, cuts slices.

#include "cmd/commands.h"

#include <csignal>

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
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : exit_usage;
    }
    return exit_code;
}
