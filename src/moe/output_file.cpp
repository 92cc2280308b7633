#include "moe/output_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

namespace linkcpp::moe {

namespace {

std::string folder_of(const std::string& path) {
    const size_t slash = path.find_last_of('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_folder(const std::string& path) {
    struct stat stat {};
    return ::stat(path.c_str(), &stat) == 0 && S_ISDIR(stat.st_mode);
}

Status check_space(const std::string& path, uint64_t expected_bytes) {
    struct statvfs disk {};
    if (statvfs(folder_of(path).c_str(), &disk) != 0) return {};  // unknown: the writes will tell
    const uint64_t free_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    if (disk.f_blocks == 0 || free_bytes >= expected_bytes) return {};
    return {Code::exhausted,
            fmt::format("{}: not enough space: {:.1f} MB are needed, {:.1f} MB are free on that disk", path,
                        static_cast<double>(expected_bytes) / 1e6, static_cast<double>(free_bytes) / 1e6)};
}

/// Whether the open file still has the name `part`: while we waited for the lock, its writer may have renamed it.
bool still_named(int fd, const std::string& part) {
    struct stat opened {
    }, named{};
    return fstat(fd, &opened) == 0 && stat(part.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, uint64_t expected_bytes) {
    return open(path, expected_bytes, false);
}

Result<OutputFile> OutputFile::resume(const std::string& path, uint64_t expected_bytes) {
    return open(path, expected_bytes, true);
}

Result<OutputFile> OutputFile::open(const std::string& path, uint64_t expected_bytes, bool keep) {
    if (is_folder(path)) return Status(Code::invalid_argument, path + ": is a folder; name a file in it");
    const std::string part = path + ".part";
    struct stat before {};
    const bool exists = keep && ::stat(part.c_str(), &before) == 0;
    const uint64_t there = exists ? static_cast<uint64_t>(before.st_blocks) * 512 : 0;
    LINKCPP_TRY(check_space(path, expected_bytes - std::min(expected_bytes, there)));
    for (int attempt = 0; attempt < 8; ++attempt) {
        const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) return Status(Code::io, part + ": cannot be created: " + std::strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            close(fd);
            return Status(Code::unavailable, path + ": another process is writing this file; wait or name another");
        }
        if (!still_named(fd, part)) {
            close(fd);
            continue;
        }
        OutputFile file(path, part, fd, keep);
        if (!keep && ftruncate(fd, 0) != 0) return file.error("cannot be emptied");
        return file;
    }
    return Status(Code::unavailable, path + ": other processes keep writing this file");
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), part_(std::move(other.part_)), fd_(std::exchange(other.fd_, -1)),
      keep_(other.keep_), synced_(other.synced_.load()) {}

OutputFile::~OutputFile() {
    if (fd_ < 0) return;
    // Unlinked before the lock goes, so that nobody can have opened it meanwhile and lose it.
    if (!part_.empty() && !keep_) unlink(part_.c_str());
    close(fd_);
}

Status OutputFile::error(const char* what) const {
    const int error = errno;
    const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
    const char* reason = error == EFBIG ? "the file size limit is reached" : std::strerror(error);
    return {full ? Code::exhausted : Code::io,
            fmt::format("{}: {}: {}; {}", path_, what, reason,
                        keep_ ? "what has arrived is kept" : "nothing was left behind")};
}

Status OutputFile::read_at(uint64_t offset, std::span<uint8_t> out) const {
    while (!out.empty()) {
        const ssize_t n = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return {Code::io, path_ + ": cannot be read: " + std::strerror(errno)};
        if (n == 0) return {Code::corrupt, path_ + ": ends too early"};
        out = out.subspan(static_cast<size_t>(n));
        offset += static_cast<uint64_t>(n);
    }
    return {};
}

Status OutputFile::write_at(uint64_t offset, ByteSpan bytes) {
    synced_ = false;
    while (!bytes.empty()) {
        const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return error("cannot be written");
        bytes = bytes.subspan(static_cast<size_t>(n));
        offset += static_cast<uint64_t>(n);
    }
    return {};
}

Status OutputFile::resize(uint64_t bytes) {
    synced_ = false;
    while (ftruncate(fd_, static_cast<off_t>(bytes)) != 0) {
        if (errno != EINTR) return error("cannot be given its size");
    }
    return {};
}

Status OutputFile::sync() {
    if (synced_) return {};
    if (fsync(fd_) != 0) return error("cannot be made durable");
    synced_ = true;
    return {};
}

Status OutputFile::publish() {
    LINKCPP_TRY(sync());
    if (rename(part_.c_str(), path_.c_str()) != 0) return error("cannot be given its name");
    part_.clear();
    // The name is durable once its folder is; file systems that cannot sync a folder do it on their own.
    const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        fsync(folder);
        close(folder);
    }
    return {};
}

uint64_t OutputFile::allocated_bytes() const {
    struct stat stat {};
    return fstat(fd_, &stat) == 0 ? static_cast<uint64_t>(stat.st_blocks) * 512 : 0;
}

}  // namespace linkcpp::moe
