#pragma once
// A file that appears whole or not at all: written as "<path>.part" in the same folder, made durable, then renamed.
// Destroyed before publish(), it leaves nothing behind. Two processes that write the same path exclude each other. Not
// thread-safe.

#include "base/bytes.h"
#include "base/status.h"

#include <atomic>
#include <span>
#include <string>

namespace linkcpp::moe {

class OutputFile {
  public:
    /// `expected_bytes`: what will be written, to refuse early when the disk cannot hold it. Errors: exhausted (no
    /// space), io (cannot be created), invalid_argument (`path` is a folder), unavailable (somebody else is writing it).
    static Result<OutputFile> create(const std::string& path, uint64_t expected_bytes);
    /// The same, but what an earlier attempt left in the partial file stays, and stays again if this attempt ends early.
    static Result<OutputFile> resume(const std::string& path, uint64_t expected_bytes);

    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    ~OutputFile();

    const std::string& path() const { return path_; }

    /// Reads back what was written. Errors: io, corrupt (beyond the end).
    Status read_at(uint64_t offset, std::span<uint8_t> out) const;
    /// Errors: exhausted (disk full, quota, file size limit), io. Several threads may write different places at once.
    Status write_at(uint64_t offset, ByteSpan bytes);
    /// Sets the length; what was never written reads as zeros and takes no space where the file system has holes.
    Status resize(uint64_t bytes);
    /// Makes what was written durable. Errors as write_at.
    Status sync();
    /// sync()s and gives the file its name, replacing what had it.
    Status publish();
    /// Bytes that the file takes on the disk, holes not counted.
    uint64_t allocated_bytes() const;

  private:
    OutputFile(std::string path, std::string part, int fd, bool keep)
        : path_(std::move(path)), part_(std::move(part)), fd_(fd), keep_(keep) {}
    static Result<OutputFile> open(const std::string& path, uint64_t expected_bytes, bool keep);
    Status error(const char* what) const;

    std::string path_, part_;
    int fd_ = -1;
    bool keep_ = false;  ///< the partial file stays when this object goes
    std::atomic<bool> synced_ = false;
};

}  // namespace linkcpp::moe
