// linkcpp pull: a slice or the backbone of a model from a hub.

#include "cmd/commands.h"

#include "base/log.h"
#include "client/known_hubs.h"
#include "client/pull.h"
#include "cmd/find_hub.h"
#include "cmd/interrupt.h"
#include "cmd/progress.h"
#include "cmd/units.h"
#include "cmd/values.h"

#include <cstdlib>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

constexpr const char* examples = R"(
Examples:
  linkcpp pull --hub http://hub:19000 qwen --backbone -o backbone.gguf           everything but the experts
  linkcpp pull --hub http://hub:19000 qwen --layers 0:4 --experts 0:64 -o s.gguf
Interrupted in whatever way, the same command goes on where it was. Every slab is compared with the hub's signed manifest;
the hub's key is remembered at the first contact, and another one is refused later.
)";

struct Options {
    std::string hub, model, output, layers = ":", experts = ":", hub_key, ca;
    int n_connections = 4, patience = 600;
    bool backbone = false, json = false;
};

int fail(const Status& status) {
    log_error("{}", status.message());
    return exit_failed;
}

std::string known_hubs_path() {
    if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder && *folder)
        return std::string(folder) + "/linkcpp/known_hubs";
    const char* home = std::getenv("HOME");
    return std::string(home && *home ? home : ".") + "/.config/linkcpp/known_hubs";
}

bool is_model_name(const std::string& name) {
    return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
        return std::isalnum(c) || c == '.' || c == '_' || c == '-';
    });
}

Status check_key(const Options& options, const client::HubUrl& url, const PublicKey& key) {
    if (options.hub_key.empty()) return client::check_known_hub(known_hubs_path(), url, key);
    auto wanted = PublicKey::parse(options.hub_key);
    if (!wanted.ok()) return wanted.status();
    if (*wanted == key) return {};
    return {Code::mismatch, url.str() + " has the key " + key.hex() + ", not the one that --hub-key names"};
}

Result<std::vector<client::PullFile>> plan(const Options& options, const moe::Manifest& manifest) {
    if (options.backbone) return client::plan_backbone_pull(manifest, options.model, options.output);
    const auto layers = parse_range(options.layers, static_cast<int>(manifest.n_layer));
    const auto experts = parse_range(options.experts, static_cast<int>(manifest.n_expert));
    if (!layers.ok()) return layers.status();
    if (!experts.ok()) return experts.status();
    auto file = client::plan_slice_pull(
        manifest, options.model, {layers->first, layers->second, experts->first, experts->second}, options.output);
    if (!file.ok()) return file.status();
    return std::vector{std::move(*file)};
}

Result<client::Pulled> pull(const Options& options, const client::HubUrl& url, const client::HttpSettings& http,
                            const std::vector<client::PullFile>& files, const std::atomic<bool>& cancelled) {
    const SteadyClock clock;
    std::optional<ProgressBar> checking, pulling;
    client::PullSettings settings;
    settings.http = http;
    settings.n_connections = options.n_connections;
    settings.patience = std::chrono::seconds(options.patience);
    settings.cancelled = &cancelled;
    settings.checking = [&](uint64_t done, uint64_t total) {
        if (!checking) checking.emplace("Checking what is here", clock, stderr_is_terminal());
        checking->update(done, total);
    };
    settings.progress = [&](uint64_t done, uint64_t total, uint64_t resumed) {
        checking.reset();
        const std::string label =
            resumed == 0 ? "Pulling" : fmt::format("Pulling the rest ({} were here)", human_bytes(resumed));
        if (!pulling) pulling.emplace(label, clock, stderr_is_terminal());
        pulling->update(done - std::min(done, resumed), total - resumed);
    };
    return client::pull(url, files, settings);
}

int report(const Options& options, const client::SignedManifest& manifest, const std::vector<client::PullFile>& files,
           const client::Pulled& pulled) {
    if (options.json) {
        std::vector<std::string> paths;
        for (const client::PullFile& file : files)
            paths.push_back(file.path);
        const ordered_json record = {{"kind", options.backbone ? "backbone" : "slice"},
                                     {"paths", paths},
                                     {"model_id", manifest.model_id.hex()},
                                     {"hub_key", manifest.hub_key.hex()},
                                     {"bytes_verified", pulled.bytes},
                                     {"bytes_resumed", pulled.resumed},
                                     {"bytes_fetched", pulled.fetched},
                                     {"damaged", pulled.n_wrong}};
        fmt::print("{}\n", record.dump(2, ' ', false, ordered_json::error_handler_t::replace));
        return 0;
    }
    for (const client::PullFile& file : files)
        fmt::print("{}\n", file.path);
    fmt::print("{} verified, {} of them were here; model {}, hub key {}\n", human_bytes(pulled.bytes),
               human_bytes(pulled.resumed), manifest.model_id.brief(), manifest.hub_key.fingerprint());
    return 0;
}

int run(const Options& options) {
    const auto url = find_hub(options.hub);
    if (!url.ok()) return fail(url.status());
    if (!is_model_name(options.model))
        return fail({Code::invalid_argument, "'" + options.model + "' is no name of a model"});
    const std::atomic<bool>& cancelled = catch_interrupts();
    client::HttpSettings http;
    http.ca_file = options.ca;
    http.stop = &cancelled;
    const auto manifest = client::fetch_manifest(*url, options.model, http);
    if (!manifest.ok()) return fail(manifest.status());
    const Status known = check_key(options, *url, manifest->hub_key);
    if (!known.ok()) return fail(known);
    const auto files = plan(options, manifest->manifest);
    if (!files.ok()) return fail(files.status());
    const auto pulled = pull(options, *url, http, *files, cancelled);
    if (!pulled.ok()) return fail(pulled.status());
    return report(options, *manifest, *files, *pulled);
}

}  // namespace

void add_pull(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<Options>();
    CLI::App* pull = app.add_subcommand("pull", "Get a slice or the backbone of a model from a hub");
    pull->footer(examples);
    pull->add_option("model", options->model, "The model, as the hub calls it")->required()->type_name("MODEL");
    pull->add_option("--hub", options->hub, "The hub; auto: the one on the local network")
        ->required()
        ->type_name("URL|auto");
    pull->add_option("-o,--output", options->output, "The file to write")->required()->type_name("FILE");
    auto* layers =
        pull->add_option("--layers", options->layers, "Layers of the slice (default: all)")->type_name("A:B");
    auto* experts =
        pull->add_option("--experts", options->experts, "Experts of each layer (default: all)")->type_name("C:D");
    pull->add_flag("--backbone", options->backbone, "Everything but the experts, holes in their place")
        ->excludes(layers)
        ->excludes(experts);
    pull->add_option("--hub-key", options->hub_key, "The hub's key, when it is known (default: as at first contact)")
        ->type_name("HEX");
    pull->add_option("--ca", options->ca, "Certificate authority for https (default: the system's)")->type_name("FILE");
    pull->add_option("--connections", options->n_connections, "Connections at once")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    pull->add_option("--patience", options->patience, "Seconds without a byte before giving up")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    pull->add_flag("--json", options->json, "Print the result as JSON");
    pull->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace linkcpp::cmd
