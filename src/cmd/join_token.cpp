#include "cmd/join_token.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace linkcpp::cmd {

Result<Bytes> read_join_token(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return {Code::io, path + ": " + std::strerror(errno)};
    std::string text(std::istreambuf_iterator<char>(file), {});
    const size_t begin = text.find_first_not_of(" \t\r\n"), end = text.find_last_not_of(" \t\r\n");
    text = begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
    if (text.size() < 16) {
        return {Code::invalid_argument,
                path + " does not hold a join token of at least 16 characters; make one: openssl rand -hex 32 > " +
                    path};
    }
    return Bytes(text.begin(), text.end());
}

}  // namespace linkcpp::cmd
