#include "moe/mapped_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace linkcpp::moe {

namespace {

Status open_error(const std::string& path) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return {Code::not_found, path + ": no such file"};
    return {Code::io, path + ": cannot be read: " + std::strerror(error)};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    // O_NONBLOCK: opening a named pipe by mistake must not hang.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return open_error(path);
    MappedFile file(path, fd, {});
    struct stat stat {};
    if (fstat(fd, &stat) != 0) return open_error(path);
    if (!S_ISREG(stat.st_mode)) return Status(Code::invalid_argument, path + ": is not a file");
    if (stat.st_size == 0) return Status(Code::corrupt, path + ": is empty");
    const auto size = static_cast<uint64_t>(stat.st_size);
    if (size > SIZE_MAX) return Status(Code::exhausted, path + ": is too large for this machine's address space");
    void* address = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return open_error(path);
    file.bytes_ = {static_cast<const uint8_t*>(address), static_cast<size_t>(size)};
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(fd_, other.fd_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
    if (fd_ >= 0) close(fd_);
}

bool MappedFile::is_same_file(const std::string& path) const {
    struct stat mine {
    }, other{};
    return fstat(fd_, &mine) == 0 && stat(path.c_str(), &other) == 0 && mine.st_dev == other.st_dev &&
           mine.st_ino == other.st_ino;
}

Status MappedFile::read_at(uint64_t offset, std::span<uint8_t> out) const {
    size_t done = 0;
    while (done < out.size()) {
        const ssize_t n = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return {Code::io, path_ + ": cannot be read: " + std::strerror(errno)};
        if (n == 0) return {Code::corrupt, path_ + ": became shorter while it was read"};
        done += static_cast<size_t>(n);
    }
    return {};
}

void MappedFile::drop_pages(ByteSpan part) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t skip = (page - reinterpret_cast<uintptr_t>(part.data()) % page) % page;
    if (part.size() < skip + page) return;
    madvise(const_cast<uint8_t*>(part.data()) + skip, (part.size() - skip) / page * page, MADV_DONTNEED);
}

Result<Digest> hash_range(const MappedFile& file, uint64_t offset, uint64_t bytes) {
    Sha256 hash;
    Bytes buffer(static_cast<size_t>(std::min<uint64_t>(bytes, 1 << 20)));
    while (bytes > 0) {
        const std::span<uint8_t> piece(buffer.data(), static_cast<size_t>(std::min<uint64_t>(bytes, buffer.size())));
        LINKCPP_TRY(file.read_at(offset, piece));
        hash.update(piece);
        offset += piece.size();
        bytes -= piece.size();
    }
    return hash.finish();
}

}  // namespace linkcpp::moe
