#pragma once
// A file in memory that is opened by its path, as a model on disk would be.

#include "base/bytes.h"

#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace linkcpp::fuzz {

class MemoryFile {
  public:
    MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(fd_)) {}
    ~MemoryFile() { close(fd_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    /// The file holds exactly `bytes` from now on. Nobody may have it mapped.
    void set(ByteSpan bytes) {
        if (ftruncate(fd_, 0) != 0 || ftruncate(fd_, static_cast<off_t>(bytes.size())) != 0 ||
            pwrite(fd_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
            std::abort();
        }
    }
    const std::string& path() const { return path_; }

  private:
    int fd_;
    std::string path_;
};

}  // namespace linkcpp::fuzz
