#include "backend/config.h"

#include <algorithm>
#include <fnmatch.h>

namespace linkcpp::backend {

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

const ModelSettings& Config::for_file(std::string_view path) const {
    const std::string name = file_name(path);
    for (const auto& [pattern, settings] : models) {
        if (!name.empty() && fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return settings;
    }
    return defaults;
}

bool Config::any_covers(int layer) const {
    return defaults.covers(layer) ||
           std::any_of(models.begin(), models.end(), [&](const auto& entry) { return entry.second.covers(layer); });
}

}  // namespace linkcpp::backend
