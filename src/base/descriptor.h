#pragma once
// A file descriptor that is closed with its owner, and writing that does not stop half way.

#include "base/bytes.h"

#include <string>
#include <utility>

namespace linkcpp {

class Descriptor {
  public:
    /// As open(2), with O_CLOEXEC; what is created is for its owner only. Failed: ok() is false and errno says why.
    Descriptor(const std::string& path, int flags);
    /// Owns what a call of the system gave, or nothing (-1).
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    ~Descriptor();
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    bool ok() const { return fd_ >= 0; }
    int get() const { return fd_; }

  private:
    int fd_;
};

/// All bytes, in as many calls as it takes. False: not all of them, and errno says why.
bool write_all(int fd, ByteSpan bytes);

}  // namespace linkcpp
