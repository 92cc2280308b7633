#include "cmd/stats_file.h"

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

namespace linkcpp::cmd {

Result<std::unique_ptr<StatsFile>> StatsFile::open(const std::string& path) {
    auto created = std::make_unique<StatsFile>();
    created->file_.open(path, std::ios::trunc);
    if (!created->file_) return {Code::io, path + " cannot be written: " + std::strerror(errno)};
    return created;
}

void StatsFile::write(const backend::LayerStats& stats) {
    const nlohmann::ordered_json line = {
        {"model", stats.model},
        {"layer", stats.layer},
        {"tokens", stats.n_tokens},
        {"rows", stats.n_pairs},
        {"rows_remote", stats.pairs_remote},
        {"rows_local", stats.pairs_local},
        {"elapsed_us", microseconds(stats.elapsed)},
    };
    const std::lock_guard lock(mutex_);
    file_ << line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
          << std::endl;  // whole lines, for whoever follows the file
}

}  // namespace linkcpp::cmd
