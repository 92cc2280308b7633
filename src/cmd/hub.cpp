// linkcpp-hub: serves models, slice by slice, to workers and backbones.

#include "base/log.h"
#include "base/signing_key.h"
#include "cmd/blocked_signals.h"
#include "cmd/hub_swarm.h"
#include "cmd/progress.h"
#include "cmd/units.h"
#include "hub/announcement.h"
#include "hub/market_routes.h"
#include "hub/market_spec.h"
#include "hub/model_routes.h"
#include "hub/server.h"
#include "hub/shelf.h"
#include "hub/status_routes.h"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <optional>
#include <sys/resource.h>

namespace {

using namespace linkcpp;

struct Options {
    std::string listen = "127.0.0.1:19000", data, announce = "auto";
    std::vector<std::string> models;
    hub::ServerSettings server;
    cmd::HubSwarmOptions swarm;
    bool verbose = false, quiet = false;
};

constexpr const char* footer = R"(
Examples:
  linkcpp-hub --model qwen=qwen3-30b-a3b.gguf
  linkcpp-hub --model qwen=qwen3-30b-a3b.gguf --listen 0.0.0.0:19000 --join-token swarm.token
  linkcpp-hub --model big=big-00001-of-00004.gguf --model small.gguf --listen 0.0.0.0:19000 --cert hub.crt --key hub.key

Everybody who reaches the port can download the models. The hub's key signs what it says about them; clients pin it.
Ctrl-C finishes answers under way for a few seconds and ends; a second one ends at once.
Exit code: 0 ended as asked, 1 failed, 2 a command line that makes no sense.)";

int fail(const Status& status, int exit_code = 1) {
    log_error("{}", status.message());
    return exit_code;
}

std::string default_data_folder() {
    if (const char* data = std::getenv("XDG_DATA_HOME"); data && *data) return std::string(data) + "/linkcpp/hub";
    if (const char* home = std::getenv("HOME"); home && *home) return std::string(home) + "/.local/share/linkcpp/hub";
    return "linkcpp-hub-data";
}

/// The system's soft limit is often 1024, less than the connections that we take.
void allow_many_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

Status make_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return {Code::io, path + ": cannot be created: " + error.message()};
    return {};
}

Result<hub::Shelf> open_models(const Options& options, const SigningKey& key) {
    std::vector<hub::ModelSource> sources;
    for (const std::string& text : options.models) {
        auto source = hub::ModelSource::parse(text);
        if (!source.ok()) return source.status();
        sources.push_back(std::move(*source));
    }
    const SteadyClock clock;
    std::string shown;
    std::optional<cmd::ProgressBar> bar;
    return hub::Shelf::open(sources, key, {options.data, [&](const std::string& model, uint64_t done, uint64_t total) {
                                               if (options.quiet) return;
                                               if (shown != model) {
                                                   bar.reset();
                                                   bar.emplace("Manifest of " + model, clock,
                                                               cmd::stderr_is_terminal());
                                                   shown = model;
                                               }
                                               bar->update(done, total);
                                           }});
}

void print_start(const hub::Shelf& shelf, const std::string& swarm, const SigningKey& key,
                 const hub::HttpServer& server, bool tls) {
    for (const auto& model : shelf.models()) {
        const moe::ModelInfo& info = model->file.info();
        fmt::print("model {}: {}, {} layers, {} experts per layer, {} used, {}, id {}\n", model->name,
                   info.architecture, info.n_layer, info.n_expert, info.n_expert_used, cmd::human_bytes(info.n_bytes),
                   model->id.brief());
    }
    fmt::print("{}\n", swarm);
    fmt::print("hub key {}\n", key.public_key().hex());
    fmt::print("serving on {}://{}\n", tls ? "https" : "http", server.address().str());
    std::fflush(stdout);
}

/// Null: it is not announced.
Result<std::unique_ptr<hub::Announcement>> announce(const Options& options, const hub::HttpServer& server,
                                                    const SigningKey& key) {
    const net::Address address = server.address();
    const bool automatic = options.announce == "auto";
    if (options.announce == "off" || (automatic && address.is_loopback())) return std::unique_ptr<hub::Announcement>();
    auto announcement =
        hub::Announcement::start({address, !options.server.certificate.empty(), key.public_key().fingerprint()});
    if (announcement.ok() || !automatic) return announcement;
    log_info("not announced on the local network: {}", announcement.status().message());
    return std::unique_ptr<hub::Announcement>();
}

int serve(Options& options) {
    const auto targets = options.swarm.replica_targets();
    if (!targets.ok()) return fail(targets.status(), 2);
    allow_many_files();
    if (options.data.empty()) options.data = default_data_folder();
    const Status folder = make_folder(options.data);
    if (!folder.ok()) return fail(folder);
    auto key = SigningKey::load_or_create(options.data + "/hub.key");
    if (!key.ok()) return fail(key.status());
    auto shelf = open_models(options, *key);
    if (!shelf.ok()) return fail(shelf.status());

    auto specs = hub::market_specs(*shelf, *targets);
    if (!specs.ok()) return fail(specs.status(), 2);
    const auto swarm_settings = options.swarm.settings(options.server.listen.is_loopback());
    if (!swarm_settings.ok()) return fail(swarm_settings.status(), 2);
    auto store = hub::open_sqlite_store(options.data + "/hub.sqlite");
    if (!store.ok()) return fail(store.status());

    const cmd::BlockedSignals blocked;
    const SteadyClock clock;
    hub::Swarm swarm(clock, **store, key->public_key(), std::move(*specs), *swarm_settings);
    const Status granted = options.swarm.make_grants(swarm);
    if (!granted.ok()) return fail(granted, 2);
    hub::Router router;
    hub::Metrics metrics;
    hub::add_model_routes(router, *shelf);
    hub::add_market_routes(router, swarm, clock);
    hub::add_node_routes(router, swarm);
    hub::add_swarm_metrics(metrics, swarm);
    hub::add_status_routes(router, metrics);
    auto server = hub::HttpServer::listen(router, options.server);
    if (!server.ok()) return fail(server.status());
    hub::add_server_metrics(metrics, **server);
    auto announcement = announce(options, **server, *key);
    if (!announcement.ok()) return fail(announcement.status());
    (*server)->start();
    print_start(*shelf, cmd::swarm_line(*swarm_settings), *key, **server, !options.server.certificate.empty());
    blocked.wait();
    announcement->reset();
    log_info("finishing answers under way; another Ctrl-C ends at once");
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, nullptr);
    swarm.end_waiting();
    (*server)->stop();
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    std::signal(SIGPIPE, SIG_IGN);
    CLI::App app("Serves the experts of models to workers, and models to backbones.", "linkcpp-hub");
    app.footer(footer);
    app.set_version_flag("--version", "linkcpp " LINKCPP_VERSION);
    app.add_option("--model", options.models,
                   "A model to serve, a GGUF file (any part of a split one); may be given several times")
        ->type_name("[NAME=]MODEL.gguf")
        ->required()
        ->allow_extra_args(false);
    app.add_option("--listen", options.listen, "Address to listen on; port 0 picks a free one")
        ->type_name("[HOST:]PORT")
        ->capture_default_str();
    app.add_option(
           "--announce", options.announce,
           "Tell the local network, so that --hub auto finds this hub; auto: unless it listens on loopback only")
        ->check(CLI::IsMember({"on", "off", "auto"}))
        ->capture_default_str();
    app.add_option("--data", options.data,
                   "Folder for the hub's key and what it remembers (default: the user's data folder)")
        ->type_name("FOLDER");
    auto* cert =
        app.add_option("--cert", options.server.certificate, "Certificate chain for TLS, PEM")->type_name("FILE");
    auto* key = app.add_option("--key", options.server.key, "Its private key, PEM")->type_name("FILE");
    cert->needs(key);
    key->needs(cert);
    app.add_option("--threads", options.server.n_threads, "Threads that move bytes")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--max-connections", options.server.max_connections, "Connections at once")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    options.swarm.add_to(app);
    auto* verbose = app.add_flag("--verbose", options.verbose, "Tell more");
    app.add_flag("--quiet", options.quiet, "Errors only")->excludes(verbose);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    set_log_level(options.verbose ? LogLevel::debug : options.quiet ? LogLevel::error : LogLevel::info);
    auto address = net::Address::parse(options.listen);
    if (!address.ok()) return fail(address.status(), 2);
    options.server.listen = *address;
    return serve(options);
}
