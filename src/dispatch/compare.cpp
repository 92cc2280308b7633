#include "dispatch/compare.h"

#include <cstring>
#include <fmt/format.h>

namespace linkcpp::dispatch {

namespace {

/// Across numeric classes results differ in the last bits; more than this is a wrong result. docs/ARCHITECTURE.md.
constexpr double max_nmse = 1e-4;

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

Status compare_rows(std::span<const float> expected, std::span<const float> got, size_t n_out, bool same_class) {
    if (got.size() != expected.size()) return {Code::corrupt, "the answer has another size"};
    if (same_class) {
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
