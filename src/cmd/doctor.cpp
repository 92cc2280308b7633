// linkcpp doctor: looks at a set-up and says what to do about what is wrong with it.

#include "cmd/doctor.h"

#include "backend/device.h"
#include "backend/swarm_link.h"
#include "base/log.h"
#include "cmd/commands.h"
#include "cmd/swarm_options.h"
#include "moe/engine.h"
#include "moe/model_file.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

constexpr const char* examples = R"(
Examples:
  linkcpp doctor
  linkcpp doctor -m backbone.gguf --workers 10.0.0.5:50071,10.0.0.6:50071
  linkcpp doctor -m backbone.gguf --hub http://10.0.0.2:19000
  linkcpp doctor -m model.gguf --backbone backbone.gguf --config swarm.json --json
Ends with 1 if there is a problem, with 0 if there are none, or warnings only.
)";

struct Options {
    std::string model, backbone;
    SwarmOptions swarm;
    int n_threads = 0;
    bool json = false;
};

const char* level_name(Level level) {
    return level == Level::ok ? "ok" : level == Level::warning ? "warning" : "problem";
}

std::string findings_text(const std::vector<Finding>& findings) {
    size_t width = 0;
    for (const Finding& finding : findings)
        width = std::max(width, finding.check.size());
    std::string text;
    for (const Finding& finding : findings) {
        text += fmt::format("{:<9}{:<{}}  {}\n", level_name(finding.level), finding.check, width, finding.message);
        if (!finding.advice.empty()) text += fmt::format("{:<{}}  -> {}\n", "", 9 + width, finding.advice);
    }
    return text;
}

std::string findings_json(const std::vector<Finding>& findings, bool good) {
    ordered_json list = ordered_json::array();
    for (const Finding& finding : findings) {
        list.push_back({{"level", level_name(finding.level)},
                        {"check", finding.check},
                        {"message", finding.message},
                        {"advice", finding.advice}});
    }
    const ordered_json record = {{"ok", good}, {"findings", list}};
    return record.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// The workers that a hub names are looked at like all others.
void ask_hub(const backend::Config& config, const std::string& loaded, Setup& setup, std::vector<Finding>& findings) {
    if (!setup.settings.hub.url) return;
    const std::string check = "hub " + setup.settings.hub.url->str();
    backend::SwarmModel model;
    if (const auto file = moe::ModelFile::open(loaded); file.ok()) model.fingerprint = file->info().fingerprint.hex();
    if (const auto own_class = moe::numeric_class(""); own_class.ok()) model.numeric_class = *own_class;
    const auto link = backend::SwarmLink::open(setup.settings, model, config);
    if (!link.ok()) {
        findings.push_back({Level::problem, check, link.status().message(),
                            "is linkcpp-hub running there, and does it serve this model?"});
        return;
    }
    setup.settings.workers = (*link)->workers();
    const size_t n = setup.settings.workers.size();
    if (n == 0)
        findings.push_back({Level::warning, check, "names no workers",
                            "start some: linkcpp-expert-worker --hub " + setup.settings.hub.url->str()});
    else
        findings.push_back({Level::ok, check, fmt::format("names {} worker{}", n, n == 1 ? "" : "s"), ""});
}

int run(const Options& options) {
    set_log_level(LogLevel::error);  // what the checks find is in the table
    moe::silence_ggml();
    std::vector<Finding> findings;
    check_programs(findings);
    const auto config = backend_config(options.swarm, 0);
    if (config.ok()) {
        const std::string& loaded = options.backbone.empty() ? options.model : options.backbone;
        Setup setup{options.model, options.backbone, config->for_file(loaded), options.n_threads};
        if (!loaded.empty()) check_files(setup, findings);
        ask_hub(*config, loaded, setup, findings);
        check_workers(setup, findings);
        check_machine(setup, findings);
    } else {
        findings.push_back({Level::problem, "config", config.status().message(), "see docs/PLUGIN.md"});
    }
    const bool good = std::none_of(findings.begin(), findings.end(),
                                   [](const Finding& finding) { return finding.level == Level::problem; });
    fmt::print("{}", options.json ? findings_json(findings, good) : findings_text(findings));
    return std::fflush(stdout) == 0 && good ? 0 : exit_failed;
}

/// Loads the plugin as a stock tool does. The settings of the environment are not for this process.
int load_plugin(const std::string& path) {
    for (const char* variable :
         {"GGML_BACKEND_PATH", "LINKCPP_CONFIG", "LINKCPP_STATS", "LINKCPP_WORKERS", "LINKCPP_HUB"})
        unsetenv(variable);
    setenv("LINKCPP_LOG", "error", 1);
    moe::silence_ggml();
    ggml_backend_reg_t registration = ggml_backend_load(path.c_str());
    if (registration == nullptr) return exit_failed;  // ggml said why
    fmt::print("{} loads; backend interface {}, here {}; ggml {} ({})\n", path, registration->api_version,
               GGML_BACKEND_API_VERSION, ggml_version(), ggml_commit());
    return std::fflush(stdout) == 0 && registration->api_version == GGML_BACKEND_API_VERSION ? 0 : exit_failed;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* doctor = app.add_subcommand("doctor", "Look for what is wrong with a set-up, and say what to do");
    doctor->footer(examples);
    CLI::Option* model =
        doctor->add_option("-m,--model", options->model, "The model, or its backbone file")->type_name("MODEL.gguf");
    doctor->add_option("--backbone", options->backbone, "The backbone file that is loaded (default: the model)")
        ->type_name("BACKBONE.gguf")
        ->needs(model);
    add_swarm_options(*doctor, options->swarm, false);
    doctor->add_option("-t,--threads", options->n_threads, "Threads that you mean to compute with")
        ->check(CLI::Range(1, 512))
        ->type_name("N");
    doctor->add_flag("--json", options->json, "Print JSON");
    doctor->callback([options, &exit_code] { exit_code = run(*options); });

    auto path = std::make_shared<std::string>();
    CLI::App* plugin = app.add_subcommand("doctor-plugin", "What doctor runs: loads the plugin");
    plugin->group("");  // not in the help
    plugin->add_option("path", *path)->required();
    plugin->callback([path, &exit_code] { exit_code = load_plugin(*path); });
}

}  // namespace linkcpp::cmd
