#pragma once
// A file opened for reading: mapped, for spans that are used without a copy, and readable in pieces, for work that goes
// through all of it. Prefer read_at() for the latter: an I/O error or a file that somebody cuts short is then an error,
// where a mapped page would be a signal. Immutable after open(); const members may be called from any thread.

#include "base/digest.h"
#include "base/status.h"

#include <span>
#include <string>

namespace linkcpp::moe {

class MappedFile {
  public:
    /// Errors: not_found, io (cannot be read), invalid_argument (not a regular file), corrupt (empty).
    static Result<MappedFile> open(const std::string& path);

    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    const std::string& path() const { return path_; }
    ByteSpan bytes() const { return bytes_; }
    /// For sendfile() and the like; owned by this object.
    int fd() const { return fd_; }
    /// True when `path` names this very file, under whatever name.
    bool is_same_file(const std::string& path) const;

    /// Fills `out` with the bytes from `offset` on. Errors: corrupt (the file ends before), io.
    Status read_at(uint64_t offset, std::span<uint8_t> out) const;
    /// Tells the kernel that the mapped pages of a part of bytes() are not needed any more; they stay readable.
    static void drop_pages(ByteSpan part);

  private:
    MappedFile(std::string path, int fd, ByteSpan bytes) : path_(std::move(path)), fd_(fd), bytes_(bytes) {}

    std::string path_;
    int fd_ = -1;
    ByteSpan bytes_;
};

/// SHA-256 of a range of a file, read in pieces. Errors as MappedFile::read_at().
Result<Digest> hash_range(const MappedFile& file, uint64_t offset, uint64_t bytes);

}  // namespace linkcpp::moe
