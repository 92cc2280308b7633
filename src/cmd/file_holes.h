#pragma once
// Header only, and without the C++ library: the preload library uses it too.

#include <sys/stat.h>

namespace linkcpp::cmd {

/// By the space that the file takes, not by SEEK_HOLE: the position in the file belongs to its owner. A few zeros that
/// were not stored do not make a backbone file.
inline bool has_holes(const struct stat& status) {
    return S_ISREG(status.st_mode) && status.st_blocks * 512 < status.st_size - status.st_size / 8;
}

}  // namespace linkcpp::cmd
