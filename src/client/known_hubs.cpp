#include "client/known_hubs.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace linkcpp::client {

Status check_known_hub(const std::string& path, const HubUrl& url, const PublicKey& key) {
    std::ifstream in(path);
    std::string known_url, known_key;
    while (in >> known_url >> known_key) {
        if (known_url != url.str()) continue;
        if (known_key == key.hex()) return {};
        return {Code::mismatch, url.str() + " has another key (" + key.hex() + ") than when it was first used (" +
                                    known_key + "). If its operator made a new one, remove its line from " + path};
    }
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    std::ofstream out(path, std::ios::app);
    out << url.str() << ' ' << key.hex() << '\n';
    out.flush();
    if (!out) return {Code::io, path + ": cannot be written: " + std::strerror(errno)};
    return {};
}

}  // namespace linkcpp::client
