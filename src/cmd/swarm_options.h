#pragma once
// The options that say which workers compute a model's experts, and what they mean for the backend.

#include "backend/config.h"
#include "base/status.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace linkcpp::cmd {

struct SwarmOptions {
    std::vector<std::string> workers;  ///< none: a plain local run, without our backend
    std::string layers = ":", fallback = "auto", mode = "exact", weights, expert_cache = "2GiB";

    bool wanted() const { return !workers.empty(); }
};

void add_swarm_options(CLI::App& command, SwarmOptions& options, bool workers_required);
std::vector<std::string> swarm_arguments(const SwarmOptions& options);
/// What the options mean for the backend. They were checked while they were parsed.
backend::Config backend_config(const SwarmOptions& options, int n_threads);

/// Loads ggml's backends and, when workers are wanted, registers ours. Before any model is loaded. Errors: mismatch (a
/// plugin of ours is in this process already), unavailable (no backend at all).
Status prepare_backends(const SwarmOptions& options, backend::Config config);

/// A backbone file without its experts computes nonsense in layers that do not go to workers: an error
/// (invalid_argument). `swarm` is null for a run without workers.
Status check_model(const std::string& path, const SwarmOptions* swarm);

/// What all layers of a run add up to, for statistics.
nlohmann::ordered_json totals_json(const backend::Totals& totals);
backend::Totals totals_from_json(const nlohmann::ordered_json& json);  ///< throws what the JSON library throws
/// Bytes on the wire, both directions, per token and layer.
double bytes_per_token_layer(const backend::Totals& totals);

}  // namespace linkcpp::cmd
