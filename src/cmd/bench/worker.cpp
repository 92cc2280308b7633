#include "cmd/bench/worker.h"

#include "base/log.h"
#include "cmd/bench/echo.h"
#include "cmd/bench/service.h"
#include "cmd/own_folder.h"
#include "dispatch/dispatcher.h"
#include "moe/engine.h"
#include "net/tcp.h"

#include <fmt/format.h>

namespace linkcpp::cmd::bench {

namespace {

constexpr int min_rounds = 7, max_rounds = 200;
constexpr Duration time_per_batch = std::chrono::seconds(4);

/// A dispatcher for one worker, as a backbone has it.
class Connection {
  public:
    explicit Connection(const net::Address& worker) {
        dispatch::Settings settings;
        settings.hedge_share = 0;
        network_.loop().run([&] {
            dispatcher_ = std::make_unique<dispatch::Dispatcher>(network_, std::move(settings),
                                                                 std::vector<net::Address>{worker}, nullptr);
        });
    }
    ~Connection() {
        network_.loop().run([this] { dispatcher_.reset(); });
        network_.stop();
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    Status run(const dispatch::ExpertJob& job) {
        dispatch::JobResult result;
        return dispatcher_->run(job, result);
    }
    dispatch::PeerStats stats() {
        dispatch::PeerStats stats;
        network_.loop().run([&] { stats = dispatcher_->stats().peers.at(0); });
        return stats;
    }

  private:
    net::TcpNetwork network_;
    std::unique_ptr<dispatch::Dispatcher> dispatcher_;
};

struct Bench {
    const ExpertLayer& layer;
    Connection& connection;
    moe::Engine& engine;
    const std::atomic<bool>& stop;
    SteadyClock clock;

    Result<Duration> through_socket(const Batch& batch) {
        const dispatch::ExpertJob job = batch.job(layer);
        const Instant begin = clock.now();
        LINKCPP_TRY(connection.run(job));
        return clock.now() - begin;
    }
    Result<Duration> bare(const wire::Compute& compute, std::vector<float>& y) {
        const Instant begin = clock.now();
        LINKCPP_TRY(engine.compute(layer.layer, layer.program, compute.x, compute.x_row, compute.expert, std::span(y)));
        return clock.now() - begin;
    }
    Result<WorkerPoint> measure(uint32_t n_tokens);
};

/// Socket, bare graph and echo take turns, so that what else happens on the machine happens to all of them.
Result<WorkerPoint> Bench::measure(uint32_t n_tokens) {
    const Batch batch(layer, n_tokens);
    const wire::Compute compute = batch.compute();
    std::vector<float> y(compute.expert.size() * layer.n_embd);
    // Once without looking: pages, connections and the program are there afterwards, and the bytes are known.
    if (const auto warm = through_socket(batch); !warm.ok()) return warm.status();
    if (const auto warm = bare(compute, y); !warm.ok()) return warm.status();
    const dispatch::PeerStats once = connection.stats();
    WorkerPoint point;
    point.batch = n_tokens;
    if (const auto again = through_socket(batch); !again.ok()) return again.status();
    dispatch::PeerStats last = connection.stats();
    point.bytes_out = last.bytes_out - once.bytes_out;
    point.bytes_in = last.bytes_in - once.bytes_in;
    auto echo = Echo::start(point.bytes_out, point.bytes_in);
    if (!echo.ok()) return echo.status();

    std::vector<double> socket_tps, bare_tps, ratio, overhead, echoes, per_echo;
    const Instant begin = clock.now();
    for (int round = 0; round < max_rounds && (round < min_rounds || clock.now() - begin < time_per_batch); ++round) {
        if (stop) return {Code::unavailable, "interrupted"};
        const auto socket_time = through_socket(batch);
        if (!socket_time.ok()) return socket_time.status();
        const dispatch::PeerStats now = connection.stats();
        const Duration computed = now.computed - last.computed;
        last = now;
        const auto bare_time = bare(compute, y);
        if (!bare_time.ok()) return bare_time.status();
        const auto echo_time = (*echo)->exchange();
        if (!echo_time.ok()) return echo_time.status();
        const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
        socket_tps.push_back(n_tokens / seconds(*socket_time));
        bare_tps.push_back(n_tokens / seconds(*bare_time));
        ratio.push_back(seconds(*bare_time) / seconds(*socket_time));
        overhead.push_back(microseconds(*socket_time - computed));
        echoes.push_back(microseconds(*echo_time));
        per_echo.push_back(overhead.back() / echoes.back());
    }
    point.tokens_per_second = summarize(socket_tps);
    point.bare_tokens_per_second = summarize(bare_tps);
    point.ratio = summarize(ratio);
    point.overhead_us = summarize(overhead);
    point.echo_us = summarize(echoes);
    point.overhead_per_echo = summarize(per_echo);
    return point;
}

}  // namespace

Status measure_worker(const WorkerPlan& plan, const std::atomic<bool>& stop, Report& report) {
    auto model = moe::ModelFile::open(plan.model);
    if (!model.ok()) return model.status();
    const auto layer = ExpertLayer::of(*model);
    if (!layer.ok()) return layer.status();
    const auto program = beside_this_program("linkcpp-expert-worker");
    if (!program.ok()) return program.status();

    const SteadyClock clock;
    const Instant begin = clock.now();
    auto worker = Service::start({*program, "--serve", "127.0.0.1:0", "--model", plan.slice, "--threads",
                                  std::to_string(plan.n_threads), plan.verbose ? "--verbose" : "--quiet"},
                                 !plan.verbose);
    if (!worker.ok()) return worker.status();
    const auto address = worker->hear("serving on ", stop);
    if (!address.ok()) return address.status().in("the worker");
    report.slice_to_serving_s = std::chrono::duration<double>(clock.now() - begin).count();

    auto device = moe::Device::open("", plan.n_threads);
    if (!device.ok()) return device.status();
    auto slice = moe::SliceFile::open(plan.slice);
    if (!slice.ok()) return slice.status();
    report.slice_bytes = slice->file_bytes();
    auto engine = moe::Engine::load(*device, slice->tensors());
    if (!engine.ok()) return engine.status();
    Connection connection(*net::Address::parse(*address));
    Bench bench{*layer, connection, **engine, stop, {}};
    for (const uint32_t batch : plan.batches) {
        log_info("measuring a worker with batches of {}", batch);
        auto point = bench.measure(batch);
        if (!point.ok()) return point.status();
        report.worker.push_back(std::move(*point));
    }
    return {};
}

}  // namespace linkcpp::cmd::bench
