// libggml-linkcpp.so: what a stock llama.cpp tool loads through GGML_BACKEND_PATH. Reads the environment once, at load.
// The names and values are documented in docs/PLUGIN.md.

#include "backend/device.h"
#include "backend/runtime.h"
#include "base/log.h"
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

Status read_choices(backend::Config& config) {
    if (const std::string text = environment("LINKCPP_FALLBACK"); text == "local")
        config.fallback = backend::Fallback::local;
    else if (text == "none")
        config.fallback = backend::Fallback::none;
    else if (!text.empty() && text != "auto")
        return {Code::invalid_argument, "LINKCPP_FALLBACK is '" + text + "'; it can be auto, local or none"};
    if (const std::string text = environment("LINKCPP_MODE"); text == "sums")
        config.split = dispatch::SplitMode::sums;
    else if (!text.empty() && text != "exact")
        return {Code::invalid_argument, "LINKCPP_MODE is '" + text + "'; it can be exact or sums"};
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

Status read_environment(backend::Config& config) {
    LINKCPP_TRY(read_choices(config));
    auto workers = parse_addresses(environment("LINKCPP_WORKERS"));
    if (!workers.ok()) return workers.status().in("LINKCPP_WORKERS");
    config.workers = std::move(*workers);
    if (const std::string text = environment("LINKCPP_LAYERS"); !text.empty()) {
        const auto range = parse_range(text, INT32_MAX);
        if (!range.ok()) return range.status().in("LINKCPP_LAYERS");
        std::tie(config.layer_begin, config.layer_end) = *range;
    }
    if (const std::string text = environment("LINKCPP_EXPERT_CACHE"); !text.empty()) {
        const auto bytes = parse_size(text);
        if (!bytes.ok()) return bytes.status().in("LINKCPP_EXPERT_CACHE");
        config.expert_cache_bytes = *bytes;
    }
    config.model_path = environment("LINKCPP_MODEL");
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
    if (const Status status = cmd::read_environment(config); !status.ok()) {
        // Staying away would be worse: a sparse model would be computed with its holes. Every decode says what is wrong.
        log_error("{}", status.message());
        config.error = status.message();
    } else if (config.workers.empty()) {
        log_warning("LINKCPP_WORKERS is not set (host:port,host:port): all experts are computed here");
    }
    backend::Runtime::configure(std::move(config));
    return backend::registration();
}
