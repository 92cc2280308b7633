#pragma once
// What lies beside this program: in the build folder as in an installation, all programs and libraries are in one folder.

#include "base/status.h"

#include <string>

namespace linkcpp::cmd {

/// The path of a file that is installed beside this program. Errors: not_found, saying what to do.
Result<std::string> beside_this_program(const std::string& name);

/// Does the file take clearly less space than its size says, as a backbone file does? False where there is no such file.
bool is_file_with_holes(const std::string& path);

}  // namespace linkcpp::cmd
