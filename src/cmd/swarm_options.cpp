#include "cmd/swarm_options.h"

#include "backend/device.h"
#include "backend/runtime.h"
#include "cmd/config_file.h"
#include "cmd/node_folder.h"
#include "cmd/values.h"
#include "moe/engine.h"
#include "moe/model_file.h"

#include <fmt/format.h>

namespace linkcpp::cmd {

namespace {

/// A validator for CLI11 that says what `parse` says.
template <typename Parse>
CLI::Validator readable(Parse parse) {
    return {[parse](const std::string& text) {
                const auto value = parse(text);
                return value.ok() ? std::string() : value.status().message();
            },
            ""};
}

Result<net::Address> parse_worker(const std::string& text) {
    auto address = net::Address::parse(text);
    if (address.ok() && address->port == 0) return {Code::invalid_argument, "'" + text + "' has no port"};
    return address;
}

std::string joined(const std::vector<std::string>& texts) {
    std::string list;
    for (const std::string& text : texts)
        list += (list.empty() ? "" : ",") + text;
    return list;
}

}  // namespace

void add_swarm_options(CLI::App& command, SwarmOptions& options, bool workers_required) {
    command.add_option("--workers", options.workers, "The workers that compute the experts")
        ->delimiter(',')
        ->check(readable(parse_worker))
        ->type_name("HOST:PORT,...");
    const auto add = [&](const char* name, const char* key, std::string& value, const char* description,
                         const char* type) {
        return command.add_option(name, value, description)
            ->type_name(type)
            ->check(readable([key](const std::string& text) -> Result<bool> {
                backend::ModelSettings settings;
                LINKCPP_TRY(set_model_setting(settings, key, text));
                return true;
            }));
    };
    add("--hub", "hub", options.hub, "The hub that knows the workers; they may come and go", "http[s]://HOST:PORT");
    command.add_option("--config", options.config, "Workers and settings per model, see docs/PLUGIN.md")
        ->check(CLI::ExistingFile)
        ->type_name("FILE.json");
    const std::vector<CLI::Option*> of_hub = {
        add("--hub-model", "hub_model", options.hub_model,
            "What the hub calls the model (default: the one that is the same file)", "NAME"),
        add("--hub-data", "hub_data", options.hub_data,
            "Folder for this backbone's key and receipts (default: the user's data folder)", "FOLDER"),
        add("--hub-key", "hub_key", options.hub_key, "The hub's key, when it is known (default: as at first contact)",
            "HEX"),
        add("--join-token", "join_token", options.join_token, "The token of a private swarm", "FILE"),
        add("--ca", "ca", options.ca, "The authority that the hub's certificate is checked with, PEM", "FILE"),
        add("--wait", "wait", options.wait, "How long to wait for experts that no worker has (default: 60)",
            "SECONDS")};
    const std::vector<CLI::Option*> details = {
        add("--layers", "layers", options.layers, "Layers whose experts the workers compute (default: all)", "A:B"),
        add("--fallback", "fallback", options.fallback,
            "What no worker has: auto (the default: computed here where the file has the weights), local (the file "
            "must "
            "have them), none (an error)",
            "auto|local|none"),
        add("--mode", "mode", options.mode,
            "exact (the default: bit by bit the tokens of a local run) or sums (fewer bytes, another order of "
            "additions)",
            "exact|sums"),
        add("--policy", "policy", options.policy,
            "Workers that may compute: tolerant (the default: also those with other instructions, whose last bits "
            "differ) "
            "or exact (only those whose every bit is that of this machine)",
            "exact|tolerant"),
        add("--audit", "audit", options.audit,
            "Share of the workers' answers that are computed again, here or by another worker (default: 1/1024); 1: "
            "all, "
            "before they are used; 0: none",
            "SHARE"),
        add("--weights", "model", options.weights, "The full model, for what no worker has, when -m is a backbone file",
            "FULL.gguf")
            ->check(CLI::ExistingFile),
        add("--expert-cache", "expert_cache", options.expert_cache,
            "Memory for experts that are computed here (default: 2GiB)", "SIZE")};
    command.parse_complete_callback([&options, of_hub, details, workers_required] {
        for (const CLI::Option* option : of_hub) {
            if (option->count() > 0 && options.hub.empty() && options.config.empty())
                throw CLI::RequiresError(option->get_name(), "--hub or --config");
        }
        if (options.wanted()) return;
        if (workers_required) throw CLI::RequiredError("--workers, --hub or --config");
        for (const CLI::Option* option : details) {
            if (option->count() > 0) throw CLI::RequiresError(option->get_name(), "--workers, --hub or --config");
        }
    });
}

std::vector<std::string> swarm_arguments(const SwarmOptions& options) {
    std::vector<std::string> arguments;
    const auto add = [&](const char* name, const std::string& value) {
        if (!value.empty()) arguments.insert(arguments.end(), {name, value});
    };
    add("--workers", joined(options.workers));
    add("--hub", options.hub);
    add("--hub-model", options.hub_model);
    add("--hub-data", options.hub_data);
    add("--hub-key", options.hub_key);
    add("--join-token", options.join_token);
    add("--ca", options.ca);
    add("--wait", options.wait);
    add("--config", options.config);
    add("--layers", options.layers);
    add("--fallback", options.fallback);
    add("--mode", options.mode);
    add("--policy", options.policy);
    add("--audit", options.audit);
    add("--weights", options.weights);
    add("--expert-cache", options.expert_cache);
    return arguments;
}

std::vector<std::pair<const char*, std::string>> model_settings(const SwarmOptions& options) {
    return {{"hub", options.hub},
            {"hub_model", options.hub_model},
            {"hub_data", options.hub_data},
            {"hub_key", options.hub_key},
            {"join_token", options.join_token},
            {"ca", options.ca},
            {"wait", options.wait},
            {"layers", options.layers},
            {"fallback", options.fallback},
            {"mode", options.mode},
            {"policy", options.policy},
            {"audit", options.audit},
            {"model", options.weights},
            {"expert_cache", options.expert_cache}};
}

Result<backend::Config> backend_config(const SwarmOptions& options, int n_threads) {
    const auto apply = [&options](backend::ModelSettings& settings) -> Status {
        if (!options.workers.empty()) settings.workers.clear();
        for (const std::string& worker : options.workers)
            settings.workers.push_back(*parse_worker(worker));
        for (const auto& [key, text] : model_settings(options)) {
            if (!text.empty()) LINKCPP_TRY(set_model_setting(settings, key, text));
        }
        return {};
    };
    backend::Config config;
    config.n_threads = n_threads;
    config.data_folder = default_backbone_folder();
    LINKCPP_TRY(options.config.empty() ? apply(config.defaults) : read_config_file(options.config, apply, config));
    return config;
}

Status prepare_backends(const SwarmOptions& options, backend::Config config) {
    moe::load_ggml_backends();
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
        return {Code::unavailable,
                "no ggml backend could be loaded: its modules (libggml-cpu*.so) must lie beside this program"};
    }
    // A local run would not be local, and our own backend would be there twice.
    if (ggml_backend_reg_by_name("linkcpp") != nullptr) {
        return {Code::mismatch, "the plugin of linkcpp was loaded into this program; unset GGML_BACKEND_PATH"};
    }
    if (!options.wanted()) return {};
    backend::Runtime::configure(std::move(config));
    ggml_backend_register(backend::registration());
    return {};
}

Status check_model(const std::string& path, const backend::Config* config) {
    const auto model = moe::ModelFile::open(path);
    if (!model.ok()) return model.status();
    if (!model->info().sparse) return {};
    const backend::ModelSettings* settings = config == nullptr ? nullptr : &config->for_file(path);
    if (settings == nullptr || !settings->has_workers()) {
        return {
            Code::invalid_argument,
            path + " is a backbone file: its experts are elsewhere. Name the workers that have them with --workers, or "
                   "their hub with --hub"};
    }
    for (const moe::ModelLayer& layer : model->layers()) {
        if (layer.n_expert == 0 || settings->covers(layer.layer)) continue;
        return {Code::invalid_argument, path + " is a backbone file: it has no experts for layer " +
                                            std::to_string(layer.layer) +
                                            ", which is not in --layers. Use the full model, or leave --layers out"};
    }
    return {};
}

std::string receipts_text(const backend::Totals& totals) {
    if (totals.pairs_by_node.empty() && totals.receipts_waiting == 0) return "";
    std::string nodes;
    uint64_t sum = 0;
    for (const auto& [node, rows] : totals.pairs_by_node) {
        nodes += fmt::format("{}{} {}", nodes.empty() ? "" : ", ", node.substr(0, 8), rows);
        sum += rows;
    }
    std::string text =
        fmt::format("receipts for {} rows ({}); recorded by the hub: {}{}", sum, nodes, totals.pairs_recorded,
                    totals.pairs_recorded > sum ? ", with those of earlier runs" : "");
    if (totals.receipts_waiting > 0)
        text += fmt::format("; {} receipts are kept until the hub takes them", totals.receipts_waiting);
    return text;
}

nlohmann::ordered_json totals_json(const backend::Totals& totals) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::object();
    for (const auto& [worker, pairs] : totals.pairs_by_worker)
        rows[worker] = pairs;
    nlohmann::ordered_json classes = nlohmann::ordered_json::object();
    for (const auto& [worker, name] : totals.class_by_worker)
        classes[worker] = name;
    nlohmann::ordered_json nodes = nlohmann::ordered_json::object();
    for (const auto& [node, pairs] : totals.pairs_by_node)
        nodes[node] = pairs;
    return {{"layer_calls", totals.layer_calls},
            {"layer_tokens", totals.tokens},
            {"rows_remote", totals.pairs_remote},
            {"rows_local", totals.pairs_local},
            {"rows_by_worker", rows},
            {"class_by_worker", classes},
            {"rows_by_node", nodes},
            {"rows_recorded", totals.pairs_recorded},
            {"receipts_waiting", totals.receipts_waiting},
            {"bytes_out", totals.bytes_out},
            {"bytes_in", totals.bytes_in},
            {"bytes_per_token_layer", bytes_per_token_layer(totals)},
            {"failovers", totals.failovers},
            {"rtt_p50_us", microseconds(totals.round_trip_p50)},
            {"rtt_p99_us", microseconds(totals.round_trip_p99)}};
}

backend::Totals totals_from_json(const nlohmann::ordered_json& json) {
    backend::Totals totals;
    json.at("layer_calls").get_to(totals.layer_calls);
    json.at("layer_tokens").get_to(totals.tokens);
    json.at("rows_remote").get_to(totals.pairs_remote);
    json.at("rows_local").get_to(totals.pairs_local);
    json.at("rows_by_worker").get_to(totals.pairs_by_worker);
    json.at("class_by_worker").get_to(totals.class_by_worker);
    json.at("rows_by_node").get_to(totals.pairs_by_node);
    json.at("rows_recorded").get_to(totals.pairs_recorded);
    json.at("receipts_waiting").get_to(totals.receipts_waiting);
    json.at("bytes_out").get_to(totals.bytes_out);
    json.at("bytes_in").get_to(totals.bytes_in);
    json.at("failovers").get_to(totals.failovers);
    const auto duration = [&](const char* key) {
        return std::chrono::duration_cast<Duration>(
            std::chrono::duration<double, std::micro>(json.at(key).get<double>()));
    };
    totals.round_trip_p50 = duration("rtt_p50_us");
    totals.round_trip_p99 = duration("rtt_p99_us");
    return totals;
}

double bytes_per_token_layer(const backend::Totals& totals) {
    if (totals.tokens == 0) return 0;
    return static_cast<double>(totals.bytes_out + totals.bytes_in) / static_cast<double>(totals.tokens);
}

}  // namespace linkcpp::cmd
