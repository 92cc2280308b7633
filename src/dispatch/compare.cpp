#include "dispatch/compare.h"

#include <cstring>
#include <fmt/format.h>

namespace linkcpp::dispatch {

namespace {

/// More than this is a wrong result: the smallest error that a wrong row was seen to have is a thousand times as large.
constexpr double max_nmse_program = 1e-4;
/// Processors multiply alike up to the rounding of half precision (6e-6 at most). Tighter, because a multiplication with
/// another quantisation of the same weights, as fine as q8_0 for f16, is only just above it (3e-5 at least).
constexpr double max_nmse_matrix = 2e-5;

double nmse(std::span<const float> expected, std::span<const float> got) {
    double error = 0, power = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double difference = static_cast<double>(got[i]) - expected[i];
        error += difference * difference;
        power += static_cast<double>(expected[i]) * expected[i];
    }
    return power > 0 ? error / power : error;
}

}  // namespace

double tolerance(std::string_view one, std::string_view other, Depth depth) {
    if (one == other && !one.empty()) return 0;
    // Other devices may quantise the activations in another way, which is as large an error as that of q8_0.
    const bool processors = one.starts_with("CPU:") && other.starts_with("CPU:");
    return processors && depth == Depth::matrix ? max_nmse_matrix : max_nmse_program;
}

Status compare_rows(std::span<const float> expected, std::span<const float> got, size_t n_out, double max_nmse) {
    if (got.size() != expected.size()) return {Code::corrupt, "the answer has another size"};
    if (max_nmse == 0) {
        if (std::memcmp(got.data(), expected.data(), got.size_bytes()) == 0) return {};
        return {Code::mismatch, "the results are not bit-identical, although the numeric class is the same"};
    }
    // Row by row: among many right rows a wrong one would not show.
    for (size_t begin = 0; begin < got.size(); begin += n_out) {
        const double error = nmse(expected.subspan(begin, n_out), got.subspan(begin, n_out));
        if (error <= max_nmse) continue;
        return {Code::mismatch,
                fmt::format("the results differ, NMSE {:.2g} (at most {:.0e} is allowed)", error, max_nmse)};
    }
    return {};
}

}  // namespace linkcpp::dispatch
