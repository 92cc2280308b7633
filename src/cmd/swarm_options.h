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
    std::vector<std::string> workers;
    std::string hub;     ///< that knows the workers
    std::string config;  ///< a file with settings
    // As they were given; empty: not at all.
    std::string hub_model, hub_data, hub_key, join_token, ca, wait;
    std::string layers, fallback, mode, policy, audit, weights, expert_cache;

    /// Otherwise a plain local run, without our backend.
    bool wanted() const { return !workers.empty() || !hub.empty() || !config.empty(); }
};

void add_swarm_options(CLI::App& command, SwarmOptions& options, bool workers_required);
std::vector<std::string> swarm_arguments(const SwarmOptions& options);
/// The options that describe a model, by the keys of a file with settings; those that were not given are empty.
std::vector<std::pair<const char*, std::string>> model_settings(const SwarmOptions& options);
/// What the options mean for the backend; options change the default entry of a file. Errors: of the file only, options
/// were checked while they were parsed.
Result<backend::Config> backend_config(const SwarmOptions& options, int n_threads);

/// Loads ggml's backends and, when workers are wanted, registers ours. Before any model is loaded. Errors: mismatch (a
/// plugin of ours is in this process already), unavailable (no backend at all).
Status prepare_backends(const SwarmOptions& options, backend::Config config);

/// A backbone file without its experts computes nonsense in layers that do not go to workers: an error
/// (invalid_argument). `config` is null for a run without workers.
Status check_model(const std::string& path, const backend::Config* config);

/// One line: which nodes earned how much, and what the hub did not take yet; "" without a hub.
std::string receipts_text(const backend::Totals& totals);
/// What all layers of a run add up to, for statistics.
nlohmann::ordered_json totals_json(const backend::Totals& totals);
backend::Totals totals_from_json(const nlohmann::ordered_json& json);  ///< throws what the JSON library throws
/// Bytes on the wire, both directions, per token and layer.
double bytes_per_token_layer(const backend::Totals& totals);

}  // namespace linkcpp::cmd
