// How a verification is told: a table for people, JSON for programs.

#include "cmd/units.h"
#include "cmd/verification.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

double ratio(double swarm, double local) { return local > 0 ? swarm / local : 0; }

/// Times below a millisecond are told in microseconds.
std::string time_text(Duration duration) {
    const double us = microseconds(duration);
    return us < 1000 ? fmt::format("{:.0f} us", us) : fmt::format("{:.2f} ms", us / 1000);
}

/// A piece of text on one line.
std::string quoted(const std::string& text) {
    return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string line(const char* name, const std::string& value) { return fmt::format("  {:<15}{}\n", name, value); }

std::string speed_line(const char* name, double local, double swarm) {
    return line(name, fmt::format("{:<16}{:<16}{:.0f} %", fmt::format("{:.1f} tok/s", local),
                                  fmt::format("{:.1f} tok/s", swarm), 100 * ratio(swarm, local)));
}

std::string logits_text(const Verification& v) {
    const std::string same =
        v.logits.identical()
            ? fmt::format("bit-identical at all {} positions", v.logits.positions())
            : fmt::format("bit-identical at {} of {} positions", v.logits.positions_identical(), v.logits.positions());
    return fmt::format("max |difference| {:.3g}, cosine {:.8f}, {}", v.logits.max_abs_diff(), v.logits.cosine(), same);
}

std::string divergence_text(const Divergence& d) {
    return line("", fmt::format("token {}: {} here, {} by the workers; its lead over the second is {:.3g} here, {:.3g} "
                                "by the workers",
                                d.position + 1, quoted(d.reference_piece), quoted(d.swarm_piece), d.reference_margin,
                                d.swarm_margin));
}

std::string workers_text(const Verification& v) {
    std::string text;
    for (const auto& [worker, rows] : v.swarm.totals.pairs_by_worker) {
        const auto found = v.swarm.totals.class_by_worker.find(worker);
        const std::string name = found == v.swarm.totals.class_by_worker.end() ? "" : found->second;
        const std::string numeric = name == v.swarm.numeric_class ? "same instructions as here" : name;
        text += line("", fmt::format("{} by {} ({})", rows, worker, numeric.empty() ? "never seen" : numeric));
    }
    return text;
}

}  // namespace

std::string report_text(const Verification& v) {
    const backend::Totals& totals = v.swarm.totals;
    std::string text = line("Text", quoted(v.prompt + v.swarm.text));
    text += line("Tokens", fmt::format("{} of {} identical", v.tokens.identical, v.tokens.total));
    if (v.divergence) text += divergence_text(*v.divergence);
    text += line("Logits", logits_text(v));
    text += "\n" + line("", fmt::format("{:<16}{:<16}{}", "local", "workers", "ratio"));
    text += speed_line("Prompt", v.reference.prompt_tps, v.swarm.prompt_tps);
    text += speed_line("Decode", v.reference.tps, v.swarm.tps);
    text += line("Memory", fmt::format("{:<16}{:<16}{:.0f} %", fmt::format("{:.1f} MB", v.reference.rss_mb),
                                       fmt::format("{:.1f} MB", v.swarm.rss_mb),
                                       100 * ratio(v.swarm.rss_mb, v.reference.rss_mb)));
    text += "\n" + line("Round trip", fmt::format("{} median, {} 99th percentile", time_text(totals.round_trip_p50),
                                                  time_text(totals.round_trip_p99)));
    text += line("On the wire", fmt::format("{} per token and layer",
                                            human_bytes(static_cast<uint64_t>(bytes_per_token_layer(totals) + 0.5))));
    text +=
        line("Expert rows", fmt::format("{} by workers, {} here{}", totals.pairs_remote, totals.pairs_local,
                                        totals.failovers > 0 ? fmt::format(", {} failovers", totals.failovers) : ""));
    text += workers_text(v);
    return text;
}

std::string report_json(const Verification& v) {
    const ordered_json totals = totals_json(v.swarm.totals);
    ordered_json record = {{"verified", !v.failure().has_value()},
                           {"tokens_total", v.tokens.total},
                           {"tokens_identical", v.tokens.identical},
                           {"first_difference", nullptr},
                           {"logits_positions", v.logits.positions()},
                           {"logits_positions_identical", v.logits.positions_identical()},
                           {"logits_max_abs_diff", v.logits.max_abs_diff()},
                           {"logits_cosine", v.logits.cosine()},
                           {"tps_local", v.reference.tps},
                           {"tps_swarm", v.swarm.tps},
                           {"tps_ratio", ratio(v.swarm.tps, v.reference.tps)},
                           {"prompt_tps_local", v.reference.prompt_tps},
                           {"prompt_tps_swarm", v.swarm.prompt_tps},
                           {"prompt_tps_ratio", ratio(v.swarm.prompt_tps, v.reference.prompt_tps)},
                           {"rss_mb", v.swarm.rss_mb},
                           {"rss_mb_local", v.reference.rss_mb},
                           {"numeric_class", v.swarm.numeric_class},
                           {"one_numeric_class", v.one_numeric_class()},
                           {"prompt", v.prompt},
                           {"text", v.swarm.text},
                           {"text_local", v.reference.text},
                           {"prompt_tokens", v.reference.prompt.size()}};
    if (v.divergence) {
        record["first_difference"] = {
            {"position", v.divergence->position},        {"token_local", v.divergence->reference_token},
            {"token_swarm", v.divergence->swarm_token},  {"text_local", v.divergence->reference_piece},
            {"text_swarm", v.divergence->swarm_piece},   {"margin_local", v.divergence->reference_margin},
            {"margin_swarm", v.divergence->swarm_margin}};
    }
    record["flips"] = ordered_json::array();
    for (const Divergence& flip : v.flips) {
        record["flips"].push_back({{"position", flip.position},
                                   {"token_local", flip.reference_token},
                                   {"token_swarm", flip.swarm_token},
                                   {"margin_local", flip.reference_margin},
                                   {"margin_swarm", flip.swarm_margin}});
    }
    record.update(totals);
    if (const auto failure = v.failure()) record["failure"] = *failure;
    return record.dump(2, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace linkcpp::cmd
