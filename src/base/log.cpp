#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace linkcpp {

namespace {

spdlog::logger& logger() {
    // A logger of our own, never spdlog's default one: inside the plugin the host process may use spdlog as well.
    static spdlog::logger instance = [] {
        spdlog::logger created("linkcpp", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        created.set_pattern("%n: %^%v%$");
        return created;
    }();
    return instance;
}

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug: return spdlog::level::debug;
        case LogLevel::info: return spdlog::level::info;
        case LogLevel::warning: return spdlog::level::warn;
        case LogLevel::error: return spdlog::level::err;
        case LogLevel::quiet: return spdlog::level::off;
    }
    return spdlog::level::off;
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(level_of(level)); }

void log_line(LogLevel level, std::string_view message) { logger().log(level_of(level), message); }

}  // namespace linkcpp
