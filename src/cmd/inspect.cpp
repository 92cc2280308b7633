// linkcpp inspect: what a model, a backbone file or a slice consists of.

#include "cmd/anatomy.h"
#include "cmd/commands.h"

#include "base/log.h"
#include "cmd/progress.h"

#include <fmt/format.h>

namespace linkcpp::cmd {

namespace {

constexpr const char* examples = R"(
Examples:
  linkcpp inspect model.gguf             layers, experts, types, sizes
  linkcpp inspect model.gguf --json      the same for programs
  linkcpp inspect slice.gguf --check     also reads all experts of a slice and compares them with their digests
Works on models, split models (name any part), backbone files and slices.
)";

struct Options {
    std::string path;
    bool json = false, check = false;
};

int fail(const Status& status) {
    log_error("{}", status.message());
    return exit_failed;
}

Status check_slabs(const std::string& path) {
    auto slice = moe::SliceFile::open(path);
    if (!slice.ok()) return slice.status();
    const SteadyClock clock;
    ProgressBar bar("Checking", clock, stderr_is_terminal());
    return slice->verify([&bar](uint64_t done, uint64_t total) { bar.update(done, total); });
}

int run(const Options& options) {
    auto anatomy = read_anatomy(options.path);
    if (!anatomy.ok()) return fail(anatomy.status());
    if (options.check) {
        const Status status = check_slabs(options.path);
        if (!status.ok()) return fail(status);
    }
    fmt::print("{}", options.json ? anatomy_json(*anatomy) + "\n" : anatomy_text(*anatomy));
    return 0;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* inspect = app.add_subcommand("inspect", "Tell what a model, a backbone file or a slice consists of");
    inspect->footer(examples);
    inspect->add_option("file", options->path, "A GGUF file")->required()->type_name("FILE.gguf");
    inspect->add_flag("--json", options->json, "Print JSON");
    inspect->add_flag("--check", options->check, "Of a slice: compare all experts with their digests");
    inspect->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
