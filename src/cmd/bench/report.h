#pragma once
// What a benchmark found, as tables for people, JSON for programs and a picture.

#include "base/status.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace linkcpp::cmd::bench {

/// Of several measurements of one thing.
struct Sample {
    double median = 0, spread = 0;  ///< spread: half the range of the middle half, relative to the median
};
Sample summarize(std::vector<double> values);
nlohmann::ordered_json to_json(const Sample& sample);

/// A worker at one batch size.
struct WorkerPoint {
    uint32_t batch = 0;
    Sample tokens_per_second, bare_tokens_per_second;
    Sample ratio;                                   ///< through the socket / bare, pair by pair
    Sample stream_tokens_per_second, stream_ratio;  ///< with two requests under way
    Sample overhead_us;                             ///< of a request, beyond what the worker computed
    Sample echo_us;                                 ///< the same bytes to and fro over a plain TCP connection
    Sample overhead_per_echo;                       ///< pair by pair
    uint64_t bytes_out = 0, bytes_in = 0;
};

/// A way of running the model, beside a local run in the same minutes.
struct DecodePoint {
    std::string engine;  ///< "linkcpp", "rpc"
    int layers = 0;      ///< remote ones
    int round_trip_ms = 0;
    uint32_t batch = 1;  ///< sequences that are decoded at once
    Sample decode_tps, local_tps, decode_ratio;
    Sample prompt_tps, prompt_ratio;  ///< 0 where no prompt was measured
    double extra_ms = 0;              ///< of a step, beside the local run
    double rested_ms = 0;             ///< of a local step after a pause as long as the round trip, beside one without
    double echo_ms = 0;               ///< one layer's bytes to and fro through a relay like this one, nothing computed
    double bytes_per_token = 0;       ///< both directions, all remote layers
    double load_seconds = 0, load_mb = 0;  ///< until it can decode, and what was sent for that
};

struct Report {
    std::string model, machine, version, date;
    int n_threads = 0, layers = 0;
    uint64_t slice_bytes = 0;
    double slice_to_serving_s = 0;
    double local_load_seconds = 0;
    std::vector<WorkerPoint> worker;
    std::vector<DecodePoint> decode;
};

nlohmann::ordered_json to_json(const Report& report);
void print_tables(const Report& report);
void print_worker(const std::vector<WorkerPoint>& points);
nlohmann::ordered_json to_json(const WorkerPoint& point);
/// Errors: io.
Status write_text(const std::string& path, const std::string& text);

/// An SVG of the report's curves.
std::string plot(const Report& report);

}  // namespace linkcpp::cmd::bench
