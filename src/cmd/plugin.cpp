// libggml-linkcpp.so: what a stock llama.cpp tool loads through GGML_BACKEND_PATH. Reads the environment once, at load.
// The names and values are documented in docs/PLUGIN.md.

#include "backend/device.h"
#include "backend/runtime.h"
#include "base/log.h"
#include "cmd/config_file.h"
#include "cmd/node_folder.h"
#include "cmd/stats_file.h"
#include "cmd/values.h"

#include <cstdlib>
#include <memory>

namespace linkcpp::cmd {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

Status read_log_level() {
    const std::string level = environment("LINKCPP_LOG");
    if (level == "debug")
        set_log_level(LogLevel::debug);
    else if (level == "warning")
        set_log_level(LogLevel::warning);
    else if (level == "error")
        set_log_level(LogLevel::error);
    else if (level == "quiet")
        set_log_level(LogLevel::quiet);
    else if (!level.empty() && level != "info")
        return {Code::invalid_argument,
                "LINKCPP_LOG is '" + level + "'; it can be debug, info, warning, error or quiet"};
    return {};
}

/// The variables that describe a model; beside a file they change its default entry.
Status read_model_settings(backend::ModelSettings& settings) {
    if (const std::string text = environment("LINKCPP_WORKERS"); !text.empty()) {
        auto workers = parse_addresses(text);
        if (!workers.ok()) return workers.status().in("LINKCPP_WORKERS");
        settings.workers = std::move(*workers);
    }
    constexpr std::pair<const char*, const char*> names[] = {{"LINKCPP_HUB", "hub"},
                                                             {"LINKCPP_HUB_MODEL", "hub_model"},
                                                             {"LINKCPP_HUB_DATA", "hub_data"},
                                                             {"LINKCPP_HUB_KEY", "hub_key"},
                                                             {"LINKCPP_JOIN_TOKEN", "join_token"},
                                                             {"LINKCPP_CA", "ca"},
                                                             {"LINKCPP_WAIT", "wait"},
                                                             {"LINKCPP_LAYERS", "layers"},
                                                             {"LINKCPP_FALLBACK", "fallback"},
                                                             {"LINKCPP_MODE", "mode"},
                                                             {"LINKCPP_POLICY", "policy"},
                                                             {"LINKCPP_AUDIT", "audit"},
                                                             {"LINKCPP_MODEL", "model"},
                                                             {"LINKCPP_EXPERT_CACHE", "expert_cache"}};
    for (const auto& [name, key] : names) {
        const std::string text = environment(name);
        if (!text.empty()) LINKCPP_TRY(set_model_setting(settings, key, text).in(name));
    }
    return {};
}

Status read_environment(backend::Config& config) {
    LINKCPP_TRY(read_log_level());
    if (const std::string path = environment("LINKCPP_CONFIG"); !path.empty())
        LINKCPP_TRY(read_config_file(path, read_model_settings, config));
    else
        LINKCPP_TRY(read_model_settings(config.defaults));
    if (const std::string path = environment("LINKCPP_STATS"); !path.empty()) {
        auto file = StatsFile::open(path);
        if (!file.ok()) return file.status().in("LINKCPP_STATS");
        config.on_layer = [file = std::shared_ptr<StatsFile>(std::move(*file))](const backend::LayerStats& stats) {
            file->write(stats);
        };
    }
    return {};
}

}  // namespace

}  // namespace linkcpp::cmd

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    using namespace linkcpp;
    backend::Config config;
    config.data_folder = cmd::default_backbone_folder();
    if (const Status status = cmd::read_environment(config); !status.ok()) {
        // Staying away would be worse: a sparse model would be computed with its holes. Every decode says what is wrong.
        log_error("{}", status.message());
        config.error = status.message();
    } else if (!config.defaults.has_workers() && config.models.empty()) {
        log_warning(
            "neither LINKCPP_WORKERS (host:port,host:port) nor LINKCPP_HUB is set: all experts are computed here");
    }
    backend::Runtime::configure(std::move(config));
    return backend::registration();
}
