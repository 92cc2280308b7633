#include "cmd/bench/decode.h"

#include "base/log.h"
#include "cmd/bench/delay_proxy.h"
#include "cmd/bench/echo.h"
#include "cmd/bench/runner.h"
#include "cmd/own_folder.h"

#include <algorithm>
#include <fmt/format.h>
#include <optional>

namespace linkcpp::cmd::bench {

namespace {

double median(const std::vector<double>& values) { return summarize(values).median; }

/// The other side: a worker, or an RPC server.
struct Server {
    Service service;
    net::Address address;
};

class DecodeBench {
  public:
    DecodeBench(const DecodePlan& plan, const std::atomic<bool>& stop, Report& report)
        : plan_(plan), n_layers_(static_cast<int>(plan.expert_layers.size())), stop_(stop), report_(report) {}

    Status run() {
        RunnerOptions alone;
        alone.compute = plan_.compute;
        log_info("loading the model for the local run");
        auto local = Runner::start(alone, stop_);
        if (!local.ok()) return local.status().in("the local run");
        report_.local_load_seconds = local->load_seconds();
        local_ = &*local;
        LINKCPP_TRY(measure_engine("linkcpp"));
        return plan_.rpc ? measure_engine("rpc") : Status();
    }

  private:
    Status measure_engine(const std::string& engine) {
        for (const int layers : plan_.layers) {
            if (engine == "rpc" && layers != 1 && layers != n_layers_) continue;
            LINKCPP_TRY(measure_layers(engine, layers));
        }
        return {};
    }

    Status measure_layers(const std::string& engine, int layers) {
        if (engine != "rpc") LINKCPP_TRY(plan_.cut(begin_of(), end_of(layers), plan_.slice));
        auto server = engine == "rpc" ? start_rpc() : start_worker();
        if (!server.ok()) return server.status();
        auto proxy = DelayProxy::start(server->address);
        if (!proxy.ok()) return proxy.status();
        // What goes through the proxy first: it counts what is sent until the model can decode.
        Load load;
        const bool any_delay =
            std::any_of(plan_.round_trips.begin(), plan_.round_trips.end(), [](int ms) { return ms > 0; });
        if (any_delay) {
            auto remote = start_runner(engine, (*proxy)->address(), layers);
            if (!remote.ok()) return remote.status();
            load = {remote->load_seconds(), static_cast<double>((*proxy)->bytes_out() + (*proxy)->bytes_in()) / 1e6};
            for (const int round_trip : plan_.round_trips) {
                if (round_trip > 0) LINKCPP_TRY(measure_point(engine, *remote, **proxy, layers, round_trip, load));
            }
        }
        auto remote = start_runner(engine, server->address, layers);
        if (!remote.ok()) return remote.status();
        if (!any_delay) load.seconds = remote->load_seconds();
        if (std::find(plan_.round_trips.begin(), plan_.round_trips.end(), 0) != plan_.round_trips.end())
            return measure_point(engine, *remote, **proxy, layers, 0, load);
        return {};
    }

    /// The first `layers` that have experts, and dense ones between them.
    int begin_of() const { return plan_.expert_layers.front(); }
    int end_of(int layers) const { return plan_.expert_layers[static_cast<size_t>(layers) - 1] + 1; }

    struct Load {
        double seconds = 0, megabytes = 0;
    };

    Result<Server> start_worker() const {
        const auto program = beside_this_program("linkcpp-expert-worker");
        if (!program.ok()) return program.status();
        log_info("starting a worker");
        auto service = Service::start({*program, "--serve", "127.0.0.1:0", "--model", plan_.slice, "--threads",
                                       std::to_string(plan_.compute.threads()), "--quiet"},
                                      !plan_.compute.verbose);
        if (!service.ok()) return service.status();
        const auto address = service->hear("serving on ", stop_);
        if (!address.ok()) return address.status().in("the worker");
        return Server{std::move(*service), *net::Address::parse(*address)};
    }
    /// The stock server says nothing when it is ready, so it is tried until it answers.
    Result<Server> start_rpc() const {
        const auto program = beside_this_program("ggml-rpc-server");
        if (!program.ok()) return program.status();
        const auto port = DelayProxy::free_port();
        if (!port.ok()) return port.status();
        log_info("starting llama.cpp's RPC server");
        auto service = Service::start({*program, "-H", "127.0.0.1", "-p", std::to_string(*port), "-t",
                                       std::to_string(plan_.compute.threads()), "-d", "CPU"},
                                      !plan_.compute.verbose);
        if (!service.ok()) return service.status();
        const net::Address address{"127.0.0.1", *port};
        LINKCPP_TRY(DelayProxy::wait_for(address, std::chrono::seconds(20)).in("ggml-rpc-server"));
        return Server{std::move(*service), address};
    }

    Result<Runner> start_runner(const std::string& engine, const net::Address& address, int layers) const {
        log_info("loading the model for {} with {} of {} layers remote", engine, layers, n_layers_);
        RunnerOptions options;
        options.compute = plan_.compute;
        const std::string range = fmt::format("{}:{}", begin_of(), end_of(layers));
        if (engine == "rpc") {
            options.rpc = address.str();
            options.rpc_layers = range;
        } else {
            options.swarm.workers = {address.str()};
            options.swarm.layers = range;
            options.swarm.fallback = "none";
        }
        auto runner = Runner::start(options, stop_);
        if (!runner.ok()) return runner.status().in(engine);
        return runner;
    }

    Status measure_point(const std::string& engine, Runner& remote, DelayProxy& proxy, int layers, int round_trip,
                         const Load& load) {
        proxy.set_round_trip(std::chrono::milliseconds(round_trip));
        for (const uint32_t batch : plan_.batches) {
            if (engine == "rpc" && batch > 1) continue;
            log_info("{}: {} layer(s) remote, round trip {} ms, batch {}", engine, layers, round_trip, batch);
            DecodePoint point;
            point.engine = engine;
            point.layers = layers;
            point.round_trip_ms = round_trip;
            point.batch = batch;
            point.load_seconds = load.seconds;
            point.load_mb = load.megabytes;
            LINKCPP_TRY(measure_steps(remote, proxy, point));
            if (batch == 1 && layers == n_layers_ && round_trip == 0) LINKCPP_TRY(measure_prompt(remote, point));
            report_.decode.push_back(std::move(point));
        }
        proxy.set_round_trip(Duration::zero());
        return {};
    }

    /// Local and remote take turns; a step of each round counts by its median.
    Status measure_steps(Runner& remote, const DelayProxy& proxy, DecodePoint& point) {
        const int n_steps = point.round_trip_ms > 0 ? std::max(4, plan_.n_steps / 2) : plan_.n_steps;
        const int n_rounds = point.round_trip_ms > 0 ? std::max(2, plan_.n_rounds / 2) : plan_.n_rounds;
        std::vector<double> remote_tps, local_tps, ratio, extra, rested, echoes;
        const uint64_t out_before = proxy.bytes_out(), in_before = proxy.bytes_in();
        std::unique_ptr<Echo> echo;
        for (int round = 0; round < n_rounds; ++round) {
            const auto here = local_->decode(n_steps, point.batch, 0, stop_);
            if (!here.ok()) return here.status();
            const auto there = remote.decode(n_steps, point.batch, 0, stop_);
            if (!there.ok()) return there.status();
            local_tps.push_back(1000 * point.batch / median(*here));
            remote_tps.push_back(1000 * point.batch / median(*there));
            ratio.push_back(median(*here) / median(*there));
            extra.push_back(median(*there) - median(*here));
            if (point.round_trip_ms == 0) continue;
            const auto after_pause = local_->decode(n_steps, point.batch, point.round_trip_ms, stop_);
            if (!after_pause.ok()) return after_pause.status();
            rested.push_back(median(*after_pause) - median(*here));
            if (echo == nullptr) {
                const auto n = static_cast<uint64_t>(n_steps) * static_cast<uint64_t>(point.layers);
                auto started = Echo::start((proxy.bytes_out() - out_before) / n, (proxy.bytes_in() - in_before) / n,
                                           std::chrono::milliseconds(point.round_trip_ms));
                if (!started.ok()) return started.status();
                echo = std::move(*started);
            }
            for (int step = 0; step < n_steps; ++step) {
                const auto took = echo->exchange();
                if (!took.ok()) return took.status();
                echoes.push_back(milliseconds(*took));
            }
        }
        point.decode_tps = summarize(remote_tps);
        point.local_tps = summarize(local_tps);
        point.decode_ratio = summarize(ratio);
        point.extra_ms = median(extra);
        point.rested_ms = median(rested);
        point.echo_ms = median(echoes);
        point.bytes_per_token = static_cast<double>(proxy.bytes_out() - out_before + proxy.bytes_in() - in_before) /
                                (static_cast<double>(n_steps) * n_rounds * point.batch);
        return {};
    }

    Status measure_prompt(Runner& remote, DecodePoint& point) {
        std::vector<double> tps, ratio;
        for (int round = 0; round < std::max(2, plan_.n_rounds / 2); ++round) {
            const auto here = local_->prompt(plan_.n_prompt, stop_);
            if (!here.ok()) return here.status();
            const auto there = remote.prompt(plan_.n_prompt, stop_);
            if (!there.ok()) return there.status();
            tps.push_back(1000 * plan_.n_prompt / *there);
            ratio.push_back(*here / *there);
        }
        point.prompt_tps = summarize(tps);
        point.prompt_ratio = summarize(ratio);
        return {};
    }

    const DecodePlan& plan_;
    const int n_layers_;
    const std::atomic<bool>& stop_;
    Report& report_;
    Runner* local_ = nullptr;
};

}  // namespace

Status measure_decode(const DecodePlan& plan, const std::atomic<bool>& stop, Report& report) {
    return DecodeBench(plan, stop, report).run();
}

}  // namespace linkcpp::cmd::bench
