// The report's curves as SVG, without a library: two panels of lines on logarithmic scales are text.

#include "cmd/bench/report.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace linkcpp::cmd::bench {

namespace {

constexpr double width = 460, height = 300, left = 70, top = 50, gap = 190;
constexpr std::array colours = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

using Curve = std::vector<std::pair<double, double>>;
using Curves = std::map<std::string, Curve>;

struct Axis {
    double low = 0, high = 0;
    bool logarithmic = true;
    double share(double value) const {
        const auto scale = [this](double v) { return logarithmic ? std::log10(v) : v; };
        return high == low ? 0.5 : (scale(value) - scale(low)) / (scale(high) - scale(low));
    }
};

std::string text(double x, double y, const std::string& what, const char* anchor = "middle") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, what);
}

/// One panel at `x0`.
std::string panel(double x0, const std::string& title, const std::string& x_name, const std::string& y_name,
                  const Curves& curves, bool logarithmic_x) {
    Axis x{INFINITY, -INFINITY, logarithmic_x}, y{INFINITY, -INFINITY, true};
    std::map<double, int> ticks;
    for (const auto& [name, curve] : curves) {
        for (const auto& [cx, cy] : curve) {
            ticks[cx] = 1;
            x = {std::min(x.low, cx), std::max(x.high, cx), logarithmic_x};
            y = {std::min(y.low, cy), std::max(y.high, cy), true};
        }
    }
    if (ticks.empty() || y.low <= 0) return "";
    y.low = std::pow(10, std::floor(std::log10(y.low)));
    y.high = std::pow(10, std::ceil(std::log10(y.high)));
    std::string svg = fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", x0, top, width, height);
    svg += text(x0 + width / 2, top - 15, title) + text(x0 + width / 2, top + height + 40, x_name) +
           text(x0, top - 15, y_name);
    for (const auto& [tick, unused] : ticks)
        svg += text(x0 + x.share(tick) * width, top + height + 18, fmt::format("{:g}", tick));
    for (double tick = y.low; tick <= y.high * 1.01; tick *= 10) {
        const double at = top + height - y.share(tick) * height;
        svg += text(x0 - 6, at + 4, fmt::format("{:g}", tick), "end");
        svg += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/>\n", x0, at, width);
    }
    size_t n = 0;
    for (const auto& [name, curve] : curves) {
        const char* colour = colours[n % colours.size()];
        std::string points;
        for (const auto& [cx, cy] : curve)
            points += fmt::format("{:.1f},{:.1f} ", x0 + x.share(cx) * width, top + height - y.share(cy) * height);
        svg +=
            fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, colour);
        const double at = top + 14 + 18 * static_cast<double>(n++);
        svg +=
            fmt::format("<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"/>\n", x0 + width + 8, at - 4, colour);
        svg += text(x0 + width + 32, at, name, "start");
    }
    return svg;
}

}  // namespace

std::string plot(const Report& report) {
    Curves worker, decode;
    for (const WorkerPoint& point : report.worker) {
        worker["through a socket"].emplace_back(point.batch, point.tokens_per_second.median);
        worker["bare graph"].emplace_back(point.batch, point.bare_tokens_per_second.median);
    }
    for (const DecodePoint& point : report.decode) {
        const std::string name = fmt::format("{}, {} layer{}, batch {}", point.engine, point.layers,
                                             point.layers == 1 ? "" : "s", point.batch);
        decode[name].emplace_back(point.round_trip_ms, point.decode_tps.median);
    }
    std::string svg =
        fmt::format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
                    "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
                    2 * (left + width + gap), top + height + 60);
    svg += panel(left, "One layer of experts on a worker", "tokens in a batch", "tok/s", worker, true);
    svg += panel(2 * left + width + gap, "Decoding with remote layers", "round trip, ms", "tok/s", decode, false);
    return svg + "</svg>\n";
}

}  // namespace linkcpp::cmd::bench
