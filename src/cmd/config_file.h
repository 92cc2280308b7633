#pragma once
// Settings of the models of one process, from a JSON file (LINKCPP_CONFIG, --config; the format is in docs/PLUGIN.md), and
// the one place that knows what a setting's value may be: options and environment variables come through here too.

#include "backend/config.h"
#include "base/status.h"

#include <string>

namespace linkcpp::cmd {

/// Sets `key` ("layers", "fallback", "mode", "policy", "audit", "model", "expert_cache") from text. Errors:
/// invalid_argument, telling what it can be.
Status set_model_setting(backend::ModelSettings& settings, const std::string& key, const std::string& text);

/// Reads the text of a file into config.defaults and config.models. `override_defaults` changes the default entry before
/// the models' entries, which build on it, are read; it may be empty. Relative paths are meant from `folder`. Errors:
/// invalid_argument, naming the key.
using OverrideDefaults = std::function<Status(backend::ModelSettings&)>;
Status parse_config(const std::string& text, const std::string& folder, const OverrideDefaults& override_defaults,
                    backend::Config& config);

/// The same with the file; errors name it.
Status read_config_file(const std::string& path, const OverrideDefaults& override_defaults, backend::Config& config);

}  // namespace linkcpp::cmd
