// linkcpp serve: becomes llama.cpp's own server, with our plugin and its settings in the environment. This process is
// replaced, so signals and the exit code are the server's own.

#include "cmd/commands.h"

#include "base/log.h"
#include "cmd/own_folder.h"
#include "cmd/swarm_options.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

constexpr const char* examples = R"(
Examples:
  linkcpp serve -m model.gguf --workers 10.0.0.5:50071,10.0.0.6:50071
  linkcpp serve -m backbone.gguf --hub http://10.0.0.2:19000
  linkcpp serve -m backbone.gguf --workers 10.0.0.5:50071 --port 8080 -c 8192 -np 4
  linkcpp serve -m main.gguf -md draft.gguf --spec-type draft-simple --config swarm.json
  linkcpp serve -m model.gguf --workers 10.0.0.5:50071 -- --help      (the options of llama-server)
Options that are not in the list above, and everything behind '--', go to llama-server as they are. Ctrl-C ends it; the exit
code is the server's.
)";

struct Options {
    std::string model, stats, server;
    SwarmOptions swarm;
};

/// Our options; each takes a value.
constexpr std::array own = {"-m",         "--model",   "--workers",      "--hub",   "--hub-model",
                            "--hub-data", "--hub-key", "--join-token",   "--ca",    "--wait",
                            "--config",   "--layers",  "--fallback",     "--mode",  "--policy",
                            "--audit",    "--weights", "--expert-cache", "--stats", "--llama-server"};

bool is_own(const std::string& word) {
    return std::any_of(own.begin(), own.end(), [&](const char* option) {
        return word == option || (word.starts_with("--") && word.starts_with(std::string(option) + "="));
    });
}

void set(const char* variable, const std::string& value) {
    if (!value.empty()) setenv(variable, value.c_str(), 1);
}

/// Options count more than what the environment says.
void set_environment(const Options& options, const std::string& plugin) {
    set("GGML_BACKEND_PATH", plugin);
    std::string workers;
    for (const std::string& worker : options.swarm.workers)
        workers += (workers.empty() ? "" : ",") + worker;
    set("LINKCPP_WORKERS", workers);
    set("LINKCPP_HUB", options.swarm.hub);
    set("LINKCPP_HUB_MODEL", options.swarm.hub_model);
    set("LINKCPP_HUB_DATA", options.swarm.hub_data);
    set("LINKCPP_HUB_KEY", options.swarm.hub_key);
    set("LINKCPP_JOIN_TOKEN", options.swarm.join_token);
    set("LINKCPP_CA", options.swarm.ca);
    set("LINKCPP_WAIT", options.swarm.wait);
    set("LINKCPP_CONFIG", options.swarm.config);
    set("LINKCPP_LAYERS", options.swarm.layers);
    set("LINKCPP_FALLBACK", options.swarm.fallback);
    set("LINKCPP_MODE", options.swarm.mode);
    set("LINKCPP_POLICY", options.swarm.policy);
    set("LINKCPP_AUDIT", options.swarm.audit);
    set("LINKCPP_MODEL", options.swarm.weights);
    set("LINKCPP_EXPERT_CACHE", options.swarm.expert_cache);
    set("LINKCPP_STATS", options.stats);
}

/// A backbone file, also a draft model's, is mapped without reading its holes.
Status preload_if_needed(const Options& options, const std::vector<std::string>& for_server) {
    const bool needed =
        is_file_with_holes(options.model) || std::any_of(for_server.begin(), for_server.end(), is_file_with_holes);
    if (!needed) return {};
    const auto library = beside_this_program("liblinkcpp-preload.so");
    if (!library.ok()) return library.status();
    const char* before = std::getenv("LD_PRELOAD");
    set("LD_PRELOAD", *library + (before == nullptr || *before == '\0' ? "" : std::string(":") + before));
    return {};
}

/// Returns only when the server could not be started.
Status become_server(const Options& options, const std::vector<std::string>& for_server) {
    auto config = backend_config(options.swarm, 0);
    if (!config.ok()) return config.status();
    LINKCPP_TRY(check_model(options.model, &*config));
    const auto plugin = beside_this_program("libggml-linkcpp.so");
    if (!plugin.ok()) return plugin.status();
    std::string server = options.server;
    if (server.empty()) {
        const auto found = beside_this_program("llama-server");
        if (!found.ok()) return {Code::not_found, found.status().message() + "; or name another with --llama-server"};
        server = *found;
    }
    set_environment(options, *plugin);
    LINKCPP_TRY(preload_if_needed(options, for_server));
    std::vector<std::string> words = {server, "-m", options.model, "--poll", "0"};
    words.insert(words.end(), for_server.begin(), for_server.end());
    std::vector<char*> pointers;
    for (std::string& word : words)
        pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv(server.c_str(), pointers.data());
    return {Code::io, server + " cannot be run: " + std::strerror(errno)};
}

}  // namespace

std::vector<std::string> split_serve_words(std::vector<std::string>& words) {
    std::vector<std::string> ours, for_server;
    bool take_value = false;
    for (size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (i > 0 && !take_value && word == "--") {
            for_server.insert(for_server.end(), words.begin() + static_cast<long>(i) + 1, words.end());
            break;
        }
        const bool option = !take_value && is_own(word);
        const bool is_ours = i == 0 || take_value || option || word == "--help" || word == "-h";
        (is_ours ? ours : for_server).push_back(word);
        take_value = option && word.find('=') == std::string::npos;
    }
    words = std::move(ours);
    return for_server;
}

void add_serve(CLI::App& app, int& exit_code, std::vector<std::string> for_server) {
    auto options = std::make_shared<Options>();
    CLI::App* serve = app.add_subcommand("serve", "Run llama.cpp's server, the experts computed by workers");
    serve->footer(examples);
    serve->add_option("-m,--model", options->model, "The model, or its backbone file")
        ->required()
        ->type_name("MODEL.gguf");
    add_swarm_options(*serve, options->swarm, true);
    serve->add_option("--stats", options->stats, "Write a line of JSON for every layer and batch")->type_name("FILE");
    serve->add_option("--llama-server", options->server, "Another llama-server than the one installed beside linkcpp")
        ->type_name("PATH");
    serve->callback([options, &exit_code, for_server = std::move(for_server)] {
        log_error("{}", become_server(*options, for_server).message());
        exit_code = exit_failed;
    });
}

}  // namespace linkcpp::cmd
