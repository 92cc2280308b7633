#include "cmd/bench/worker_batches.h"

#include "base/log.h"
#include "cmd/bench/echo.h"
#include "dispatch/dispatcher.h"
#include "net/tcp.h"

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

Result<std::vector<WorkerPoint>> measure_batches(const ExpertLayer& layer, const net::Address& worker,
                                                 moe::Engine& engine, const std::vector<uint32_t>& batches,
                                                 const std::atomic<bool>& stop) {
    Connection connection(worker);
    Bench bench{layer, connection, engine, stop, {}};
    std::vector<WorkerPoint> points;
    for (const uint32_t batch : batches) {
        log_info("measuring a worker with batches of {}", batch);
        auto point = bench.measure(batch);
        if (!point.ok()) return point.status();
        points.push_back(std::move(*point));
    }
    return points;
}

}  // namespace linkcpp::cmd::bench
