#include "cmd/bench/worker_batches.h"

#include "base/log.h"
#include "cmd/bench/echo.h"
#include "dispatch/dispatcher.h"
#include "net/tcp.h"

#include <algorithm>
#include <functional>

namespace linkcpp::cmd::bench {

namespace {

constexpr int min_rounds = 7, max_rounds = 200;
constexpr Duration time_per_batch = std::chrono::seconds(4);

/// So many that the first and the last one, which have nothing beside them, count little.
int jobs_in_a_stream(Duration one) {
    return static_cast<int>(std::clamp<int64_t>(std::chrono::milliseconds(100) / std::max(one, Duration(1)), 4, 60));
}

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

    /// Runs `job` `n_jobs` times, `n_at_once` at a time; in the memory of earlier ones, as a backbone does it.
    Status run(const dispatch::ExpertJob& job, int n_jobs = 1, int n_at_once = 1);
    dispatch::PeerStats stats() {
        dispatch::PeerStats stats;
        network_.loop().run([&] { stats = dispatcher_->stats().peers.at(0); });
        return stats;
    }

  private:
    net::TcpNetwork network_;
    std::unique_ptr<dispatch::Dispatcher> dispatcher_;
    std::vector<dispatch::JobResult> memory_;  // used on the loop
};

Status Connection::run(const dispatch::ExpertJob& job, int n_jobs, int n_at_once) {
    Status status;
    int n_started = 0;
    std::atomic<int> n_under_way = 0;
    std::function<void()> start = [&] {
        ++n_started;
        ++n_under_way;
        dispatch::JobResult memory;
        if (!memory_.empty()) {
            memory = std::move(memory_.back());
            memory_.pop_back();
        }
        dispatcher_->start(
            job,
            [&](Status job_status, dispatch::JobResult result) {
                memory_.push_back(std::move(result));
                if (!job_status.ok()) status = std::move(job_status);
                if (status.ok() && n_started < n_jobs) start();
                --n_under_way;
            },
            std::move(memory));
    };
    network_.loop().run([&] {
        for (int i = 0; i < std::min(n_at_once, n_jobs); ++i)
            start();
    });
    if (!network_.loop().run_until([&] { return n_under_way == 0; }))
        return {Code::unavailable, "the network was stopped"};
    return status;
}

struct Bench {
    const ExpertLayer& layer;
    Connection& connection;
    moe::Engine& engine;
    const std::atomic<bool>& stop;
    SteadyClock clock;

    /// Of one of `n_jobs`. Two at a time: the worker has the next request when it is done with one.
    Result<Duration> through_socket(const Batch& batch, int n_jobs = 1, int n_at_once = 1) {
        const dispatch::ExpertJob job = batch.job(layer);
        const Instant begin = clock.now();
        LINKCPP_TRY(connection.run(job, n_jobs, n_at_once));
        return (clock.now() - begin) / n_jobs;
    }
    Result<Duration> bare(const wire::Compute& compute, std::vector<float>& y, int n_times = 1) {
        const Instant begin = clock.now();
        for (int i = 0; i < n_times; ++i) {
            LINKCPP_TRY(
                engine.compute(layer.layer, layer.program, compute.x, compute.x_row, compute.expert, std::span(y)));
        }
        return (clock.now() - begin) / n_times;
    }
    Result<WorkerPoint> measure(uint32_t n_tokens);
    Status measure_one_by_one(const Batch& batch, const wire::Compute& compute, Echo& echo, WorkerPoint& point);
    Status measure_streams(const Batch& batch, const wire::Compute& compute, WorkerPoint& point);
    /// Whether round `number`, from 0, of those that began at `begin` is to be run.
    bool goes_on(int number, Instant begin) const {
        return number < max_rounds && (number < min_rounds || clock.now() - begin < time_per_batch);
    }
};

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// Socket, bare graph and echo take turns, so that what else happens on the machine happens to all of them.
Status Bench::measure_one_by_one(const Batch& batch, const wire::Compute& compute, Echo& echo, WorkerPoint& point) {
    std::vector<float> y(compute.expert.size() * layer.n_embd);
    // Once without looking, for its pages and the program.
    if (const auto warm = bare(compute, y); !warm.ok()) return warm.status();
    std::vector<double> socket_tps, bare_tps, ratio, overhead, echoes, per_echo;
    dispatch::PeerStats last = connection.stats();
    const Instant begin = clock.now();
    for (int round = 0; goes_on(round, begin); ++round) {
        if (stop) return {Code::unavailable, "interrupted"};
        const auto socket_time = through_socket(batch);
        if (!socket_time.ok()) return socket_time.status();
        const dispatch::PeerStats now = connection.stats();
        const Duration computed = now.computed - last.computed;
        last = now;
        const auto bare_time = bare(compute, y);
        if (!bare_time.ok()) return bare_time.status();
        const auto echo_time = echo.exchange();
        if (!echo_time.ok()) return echo_time.status();
        socket_tps.push_back(point.batch / seconds(*socket_time));
        bare_tps.push_back(point.batch / seconds(*bare_time));
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
    return {};
}

/// Requests that keep the worker busy, beside as many runs of the bare graph. In rounds of their own: the longer a worker
/// has rested, the slower the machine is for its next request.
Status Bench::measure_streams(const Batch& batch, const wire::Compute& compute, WorkerPoint& point) {
    std::vector<float> y(compute.expert.size() * layer.n_embd);
    const auto one = through_socket(batch);
    if (!one.ok()) return one.status();
    const int n_jobs = jobs_in_a_stream(*one);
    std::vector<double> tps, ratio;
    const Instant begin = clock.now();
    for (int round = 0; goes_on(round, begin); ++round) {
        if (stop) return {Code::unavailable, "interrupted"};
        const auto stream_time = through_socket(batch, n_jobs, 2);
        if (!stream_time.ok()) return stream_time.status();
        const auto bare_time = bare(compute, y, n_jobs);
        if (!bare_time.ok()) return bare_time.status();
        tps.push_back(point.batch / seconds(*stream_time));
        ratio.push_back(seconds(*bare_time) / seconds(*stream_time));
    }
    point.stream_tokens_per_second = summarize(tps);
    point.stream_ratio = summarize(ratio);
    return {};
}

Result<WorkerPoint> Bench::measure(uint32_t n_tokens) {
    const Batch batch(layer, n_tokens);
    const wire::Compute compute = batch.compute();
    // Once without looking: pages, connections and the program are there afterwards, and the bytes are known.
    if (const auto warm = through_socket(batch); !warm.ok()) return warm.status();
    const dispatch::PeerStats once = connection.stats();
    WorkerPoint point;
    point.batch = n_tokens;
    if (const auto again = through_socket(batch); !again.ok()) return again.status();
    const dispatch::PeerStats twice = connection.stats();
    point.bytes_out = twice.bytes_out - once.bytes_out;
    point.bytes_in = twice.bytes_in - once.bytes_in;
    auto echo = Echo::start(point.bytes_out, point.bytes_in);
    if (!echo.ok()) return echo.status();
    LINKCPP_TRY(measure_one_by_one(batch, compute, **echo, point));
    LINKCPP_TRY(measure_streams(batch, compute, point));
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
