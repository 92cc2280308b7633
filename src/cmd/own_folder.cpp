#include "cmd/own_folder.h"

#include "cmd/file_holes.h"

#include <climits>
#include <cstdlib>
#include <unistd.h>

namespace linkcpp::cmd {

Result<std::string> beside_this_program(const std::string& name) {
    char path[PATH_MAX];
    if (realpath("/proc/self/exe", path) == nullptr) return {Code::io, "this program does not know where it lies"};
    const std::string program = path, found = program.substr(0, program.rfind('/') + 1) + name;
    if (access(found.c_str(), R_OK) == 0) return found;
    return {Code::not_found, found + " is not there. It is installed beside linkcpp; run `make install`, or build the "
                                     "target 'programs', with LINKCPP_STOCK_TOOLS=ON for llama.cpp's own tools"};
}

bool is_file_with_holes(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && has_holes(status);
}

}  // namespace linkcpp::cmd
