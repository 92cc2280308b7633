#include "base/descriptor.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace linkcpp {

Descriptor::Descriptor(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}

Descriptor::~Descriptor() {
    if (fd_ >= 0) close(fd_);
}

bool write_all(int fd, ByteSpan bytes) {
    while (!bytes.empty()) {
        const ssize_t n = write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return false;
        bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
}

}  // namespace linkcpp
