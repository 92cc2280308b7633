#include "cmd/bench/report.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>

namespace linkcpp::cmd::bench {

using nlohmann::ordered_json;

Sample summarize(std::vector<double> values) {
    if (values.empty()) return {};
    std::sort(values.begin(), values.end());
    const auto at = [&](double share) {
        return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
    };
    const double median = at(0.5);
    return {median, median == 0 ? 0 : (at(0.75) - at(0.25)) / 2 / std::abs(median)};
}

ordered_json to_json(const Sample& sample) { return {{"median", sample.median}, {"spread", sample.spread}}; }

namespace {

ordered_json to_json(const DecodePoint& point) {
    return {{"engine", point.engine},
            {"layers", point.layers},
            {"round_trip_ms", point.round_trip_ms},
            {"batch", point.batch},
            {"decode_tps", bench::to_json(point.decode_tps)},
            {"local_tps", bench::to_json(point.local_tps)},
            {"decode_ratio", bench::to_json(point.decode_ratio)},
            {"prompt_tps", bench::to_json(point.prompt_tps)},
            {"prompt_ratio", bench::to_json(point.prompt_ratio)},
            {"extra_ms", point.extra_ms},
            {"rested_ms", point.rested_ms},
            {"echo_ms", point.echo_ms},
            {"bytes_per_token", point.bytes_per_token},
            {"load_seconds", point.load_seconds},
            {"load_mb", point.load_mb}};
}

/// Bytes are counted by the relay only, where there is one.
std::string counted(double value) { return value > 0 ? fmt::format("{:.1f}", value) : "-"; }

std::string with_spread(const Sample& sample, const char* format) {
    return fmt::format(fmt::runtime(format), sample.median) + fmt::format(" ±{:.0f}%", 100 * sample.spread);
}

}  // namespace

ordered_json to_json(const WorkerPoint& point) {
    return {{"batch", point.batch},
            {"tokens_per_second", to_json(point.tokens_per_second)},
            {"bare_tokens_per_second", to_json(point.bare_tokens_per_second)},
            {"ratio", to_json(point.ratio)},
            {"stream_tokens_per_second", to_json(point.stream_tokens_per_second)},
            {"stream_ratio", to_json(point.stream_ratio)},
            {"overhead_us", to_json(point.overhead_us)},
            {"echo_us", to_json(point.echo_us)},
            {"overhead_per_echo", to_json(point.overhead_per_echo)},
            {"bytes_out", point.bytes_out},
            {"bytes_in", point.bytes_in}};
}

ordered_json to_json(const Report& report) {
    ordered_json worker = ordered_json::array(), decode = ordered_json::array();
    for (const WorkerPoint& point : report.worker)
        worker.push_back(to_json(point));
    for (const DecodePoint& point : report.decode)
        decode.push_back(to_json(point));
    return {{"date", report.date},
            {"model", report.model},
            {"machine", report.machine},
            {"version", report.version},
            {"threads", report.n_threads},
            {"layers", report.layers},
            {"slice_bytes", report.slice_bytes},
            {"slice_to_serving_s", report.slice_to_serving_s},
            {"local_load_seconds", report.local_load_seconds},
            {"worker", worker},
            {"decode", decode}};
}

void print_worker(const std::vector<WorkerPoint>& points) {
    constexpr const char* line = "{:>6} {:>14} {:>12} {:>14} {:>12} {:>14} {:>14} {:>14} {:>12}\n";
    fmt::print("{:>6} {:>27} {:>27}\n", "", "one request at a time", "two at a time");
    fmt::print(line, "batch", "socket tok/s", "/ bare", "socket tok/s", "/ bare", "bare tok/s", "overhead us",
               "echo us", "per echo");
    for (const WorkerPoint& point : points) {
        fmt::print(line, point.batch, with_spread(point.tokens_per_second, "{:.0f}"),
                   with_spread(point.ratio, "{:.3f}"), with_spread(point.stream_tokens_per_second, "{:.0f}"),
                   with_spread(point.stream_ratio, "{:.3f}"), with_spread(point.bare_tokens_per_second, "{:.0f}"),
                   with_spread(point.overhead_us, "{:.0f}"), with_spread(point.echo_us, "{:.0f}"),
                   with_spread(point.overhead_per_echo, "{:.2f}"));
    }
}

void print_tables(const Report& report) {
    fmt::print("{}, {} threads, {}\n", report.machine, report.n_threads, report.date);
    fmt::print("{}: {} layers with experts; ± is half the middle half of the repetitions\n", report.model,
               report.layers);
    if (!report.worker.empty()) {
        fmt::print("\nOne layer on a worker: slice of {:.2f} GB, serving {:.1f} s after its start\n",
                   static_cast<double>(report.slice_bytes) / 1e9, report.slice_to_serving_s);
        print_worker(report.worker);
    }
    if (report.decode.empty()) return;
    fmt::print("\nDecoding beside a local run (which loads in {:.1f} s); extra: a step beside the local one, echo: a "
               "layer's bytes through such a relay and nothing more, rested: a local step after a pause of a round "
               "trip beside "
               "one without\n",
               report.local_load_seconds);
    fmt::print("{:>8} {:>6} {:>6} {:>6} {:>14} {:>14} {:>12} {:>9} {:>9} {:>9} {:>12} {:>10} {:>7} {:>9}\n", "engine",
               "layers", "rtt ms", "batch", "decode tok/s", "local tok/s", "ratio", "extra ms", "echo ms", "rested ms",
               "prompt ratio", "kB/token", "load s", "load MB");
    for (const DecodePoint& point : report.decode) {
        fmt::print("{:>8} {:>6} {:>6} {:>6} {:>14} {:>14} {:>12} {:>9.2f} {:>9} {:>9} {:>12} {:>10} {:>7.1f} {:>9}\n",
                   point.engine, point.layers, point.round_trip_ms, point.batch,
                   with_spread(point.decode_tps, "{:.1f}"), with_spread(point.local_tps, "{:.1f}"),
                   with_spread(point.decode_ratio, "{:.3f}"), point.extra_ms,
                   point.round_trip_ms > 0 ? fmt::format("{:.2f}", point.echo_ms) : "-",
                   point.round_trip_ms > 0 ? fmt::format("{:.2f}", point.rested_ms) : "-",
                   point.prompt_ratio.median > 0 ? with_spread(point.prompt_ratio, "{:.3f}") : "-",
                   counted(point.bytes_per_token / 1e3), point.load_seconds, counted(point.load_mb));
    }
}

Status write_text(const std::string& path, const std::string& text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) return {Code::io, path + ": cannot be written: " + std::strerror(errno)};
    return {};
}

}  // namespace linkcpp::cmd::bench
