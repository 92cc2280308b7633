// linkcpp-expert-worker: holds slices and computes their experts for backbones that connect. Never links libllama.

#include "base/log.h"
#include "cmd/bench/worker_batches.h"
#include "cmd/blocked_signals.h"
#include "cmd/join_command.h"
#include "cmd/progress.h"
#include "cmd/units.h"
#include "cmd/values.h"
#include "moe/engine.h"
#include "net/tcp.h"
#include "worker/loop_computer.h"
#include "worker/server.h"
#include "worker/slice_store.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>

namespace {

using namespace linkcpp;

struct Options {
    std::string serve, device;
    std::vector<std::string> models;
    int n_threads = 0;
    uint64_t max_memory = 0, max_peer_memory = worker::ServerSettings().max_peer_bytes;
    cmd::JoinOptions join;
    bool bench = false, list_devices = false, insecure = false, verbose = false, quiet = false, json = false;
};

constexpr const char* footer = R"(
Examples:
  linkcpp-expert-worker --serve 50071 --model slice.gguf
  linkcpp-expert-worker --serve 127.0.0.1:0 --model a.gguf --model b.gguf --threads 4 --max-memory 2GB
  linkcpp-expert-worker --serve 0.0.0.0:50071 --model slice.gguf --insecure    (a network that you trust)
  linkcpp-expert-worker --hub http://hub:19000 --max-memory 2GB                (slices that the hub finds scarce)
  linkcpp-expert-worker --hub auto --max-memory 2GB                            (the hub of the local network)
  linkcpp-expert-worker --bench --model slice.gguf                             (how fast is this device?)

`linkcpp slice` cuts slices from a model. A worker sees the activations of the tokens that it computes.
Ctrl-C finishes what is being computed and ends; a second one ends at once.
Exit code: 0 ended as asked, 1 failed, 2 a command line that makes no sense.)";

int fail(const Status& status) {
    log_error("{}", status.message());
    return 1;
}

int list_devices() {
    for (const moe::DeviceInfo& device : moe::list_devices()) {
        fmt::print("{:<12} {}, {} of {} free\n", device.name, device.description, cmd::human_bytes(device.memory_free),
                   cmd::human_bytes(device.memory_total));
    }
    return 0;
}

Status check_address(const net::Address& address, bool insecure) {
    if (insecure || address.is_loopback()) return {};
    return {
        Code::invalid_argument,
        fmt::format(
            "{} is not a loopback address. There is no encryption or authentication yet: anybody who reaches the port "
            "can use this worker, and everybody on the path can read and change the activations. Serve on 127.0.0.1 "
            "(for instance behind an SSH tunnel), or add --insecure where the network can be trusted",
            address.host)};
}

Result<worker::SliceStore> load_slices(const Options& options, std::shared_ptr<moe::Device> device) {
    SteadyClock clock;
    std::string shown;
    std::optional<cmd::ProgressBar> bar;
    const bool terminal = cmd::stderr_is_terminal();
    return worker::SliceStore::load(options.models, std::move(device), options.max_memory,
                                    [&](const std::string& what, uint64_t done, uint64_t total) {
                                        if (options.quiet) return;
                                        if (shown != what) {
                                            bar.reset();
                                            bar.emplace(what, clock, terminal);
                                            shown = what;
                                        }
                                        bar->update(done, total);
                                    });
}

void print_text(const worker::SliceStore& store, const moe::Device& device, const net::Address& address) {
    for (const worker::HeldSlice& slice : store.slices()) {
        const moe::SliceInfo& info = slice.file.info();
        fmt::print("{}: {} ({}), layers {}-{}, experts {}-{} of {}, {}, digest {}\n", slice.file.path(),
                   info.model_name.empty() ? "unnamed model" : info.model_name, info.architecture, info.layer_begin,
                   info.layer_end - 1, info.expert_begin, info.expert_end - 1, info.n_expert,
                   cmd::human_bytes(slice.engine->bytes()), info.digest.brief());
    }
    fmt::print("numeric class {}\n{} threads\nserving on {}\n", device.numeric_class(), device.n_threads(),
               address.str());
    std::fflush(stdout);
}

void print_json(const worker::SliceStore& store, const moe::Device& device, const net::Address& address) {
    nlohmann::json slices = nlohmann::json::array();
    for (const worker::HeldSlice& slice : store.slices()) {
        const moe::SliceInfo& info = slice.file.info();
        slices.push_back({{"path", slice.file.path()},
                          {"model", info.model_name},
                          {"architecture", info.architecture},
                          {"layer_begin", info.layer_begin},
                          {"layer_end", info.layer_end},
                          {"expert_begin", info.expert_begin},
                          {"expert_end", info.expert_end},
                          {"n_expert", info.n_expert},
                          {"bytes", slice.engine->bytes()},
                          {"digest", info.digest.hex()}});
    }
    const nlohmann::json line = {{"host", address.host},
                                 {"port", address.port},
                                 {"numeric_class", device.numeric_class()},
                                 {"threads", device.n_threads()},
                                 {"slices", slices}};
    // Names come from files and need not be UTF-8.
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    std::fflush(stdout);
}

/// Tokens per second of the first layer of the first slice, through our own socket and beside it.
Status measure(const Options& options, const worker::SliceStore& store, const net::Address& address) {
    static const std::atomic<bool> never = false;
    const worker::HeldSlice& slice = store.slices().front();
    const int number = slice.engine->layers().front();
    auto layer = cmd::bench::ExpertLayer::of(number, slice.engine->shapes(number), slice.engine->n_expert(),
                                             slice.file.info().n_expert_used);
    if (!layer.ok()) return layer.status();
    layer->expert_begin = static_cast<uint32_t>(slice.file.info().expert_begin);
    const auto points = cmd::bench::measure_batches(*layer, address, *slice.engine, {1, 4, 16, 64, 256, 512}, never);
    if (!points.ok()) return points.status();
    if (!options.json) {
        cmd::bench::print_worker(*points);
        return {};
    }
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const auto& point : *points)
        lines.push_back(cmd::bench::to_json(point));
    fmt::print("{}\n", lines.dump());
    return {};
}

int serve(const Options& options, const net::Address& address) {
    // Slices first: while they load, Ctrl-C simply ends the process.
    std::optional<cmd::BlockedSignals> blocked(std::in_place);
    Result<std::shared_ptr<moe::Device>> device = moe::Device::open(options.device, options.n_threads);
    if (!device.ok()) return fail(device.status());
    blocked.reset();
    Result<worker::SliceStore> store = load_slices(options, *device);
    if (!store.ok()) return fail(store.status());

    if (!options.bench) blocked.emplace();
    const std::vector<worker::ServedSlice> served = store->served();
    net::TcpNetwork network(2);
    worker::LoopComputer computer(network.loop());
    std::unique_ptr<worker::Server> server;
    Status listening;
    net::Address bound;
    network.loop().run([&] {
        server = std::make_unique<worker::Server>(network, computer, served,
                                                  worker::ServerSettings{.build = "linkcpp " LINKCPP_VERSION,
                                                                         .numeric_class = (*device)->numeric_class(),
                                                                         .max_peer_bytes = options.max_peer_memory});
        listening = server->listen(address);
        if (listening.ok()) bound = server->address();
    });
    if (listening.ok() && options.bench) {
        listening = measure(options, *store, bound);
    } else if (listening.ok()) {
        (options.json ? print_json : print_text)(*store, **device, bound);
        blocked->wait();
        std::promise<void> drained;
        network.loop().post([&] { server->drain([&] { drained.set_value(); }); });
        log_info("finishing what is in flight; another Ctrl-C ends at once");
        blocked.reset();
        drained.get_future().wait();
    }
    network.loop().run([&] { server.reset(); });
    network.flush(std::chrono::seconds(30));
    network.stop();
    return listening.ok() ? 0 : fail(listening);
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    CLI::App app("Computes the experts of its slices for backbones that connect.", "linkcpp-expert-worker");
    app.footer(footer);
    app.set_version_flag("--version", "linkcpp " LINKCPP_VERSION);
    auto* serve_option = app.add_option("--serve", options.serve, "Address to listen on; port 0 picks a free one")
                             ->type_name("[HOST:]PORT");
    app.add_option("--model", options.models, "A slice to serve; may be given several times")
        ->type_name("SLICE.gguf")
        ->allow_extra_args(false);
    app.add_option("--device", options.device, "ggml device that computes (default: the CPU)")->type_name("NAME");
    app.add_flag("--list-devices", options.list_devices, "Show the devices and end");
    app.add_option("--threads", options.n_threads, "Threads that compute (default: all cores)")
        ->check(CLI::Range(1, 512));
    app.add_option("--max-memory", options.max_memory,
                   "Memory that the experts may take, e.g. 2GB or 512MiB; 0: no limit")
        ->transform(CLI::Validator(
            [](std::string& text) {
                const auto bytes = cmd::parse_size(text);
                if (!bytes.ok()) return bytes.status().message();
                text = std::to_string(*bytes);
                return std::string();
            },
            ""))
        ->type_name("SIZE");
    app.add_option("--max-peer-memory", options.max_peer_memory,
                   "Memory for requests and results of all connections together (default: 256MiB)")
        ->transform(CLI::AsSizeValue(true))
        ->type_name("SIZE");
    app.add_flag("--insecure", options.insecure, "Listen beyond loopback, without encryption or authentication");
    auto* bench =
        app.add_flag("--bench", options.bench,
                     "Measure this device with the first layer of the slice, in batches of 1 to 512 tokens, through "
                     "the socket and as a bare graph, and end")
            ->excludes(serve_option);
    app.add_flag("--json", options.json, "Say what is served, or what was measured, as one line of JSON");
    options.join.add_to(app);
    bench->excludes("--hub");
    auto* verbose = app.add_flag("--verbose", options.verbose, "Tell about every refusal");
    app.add_flag("--quiet", options.quiet, "Errors only")->excludes(verbose);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error) == 0 ? 0 : 2;
    }
    if (!options.verbose) moe::silence_ggml();
    set_log_level(options.verbose ? LogLevel::debug : options.quiet ? LogLevel::error : LogLevel::info);
    if (options.list_devices) return list_devices();
    if (options.join.given() ? !options.models.empty() : (!*serve_option && !options.bench) || options.models.empty()) {
        log_error(
            "nothing to do: give --serve (or --bench) and at least one --model, or --hub without --model (see --help)");
        return 2;
    }
    if (options.join.given() && options.max_memory == 0 && options.join.max_experts == 0) {
        log_error("how much may this worker take? Give --max-memory SIZE or --max-experts N");
        return 2;
    }
    Result<net::Address> address = net::Address::parse(*serve_option ? options.serve : "127.0.0.1:0");
    Status status = address.ok() ? check_address(*address, options.insecure) : address.status();
    if (!status.ok()) {
        log_error("{}", status.message());
        return 2;
    }
    if (options.join.given()) {
        worker::ServerSettings server{.build = "linkcpp " LINKCPP_VERSION, .max_peer_bytes = options.max_peer_memory};
        return cmd::join(options.join,
                         {*address, options.device, options.n_threads, options.max_memory, server, options.quiet});
    }
    return serve(options, *address);
}
