// libllama maps a model and asks for all of it at once (MAP_POPULATE, then MADV_WILLNEED). For a backbone file that is
// mostly holes this fills the page cache with zeros: 20 seconds and 9 GB for a model whose dense part is 1 GB. There is no
// parameter for it, so this program defines mmap and posix_madvise itself: a shared library's call finds the program's
// definition first. Files without holes are mapped exactly as before.

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__linux__) && defined(__LP64__)

namespace {

/// A mapping of a file with holes. A range that was unmapped since does no harm: an advice is only a hint.
struct Range {
    std::atomic<uintptr_t> begin = 0, end = 0;
};

// The latest ones; were there more, those forgotten are read ahead in vain, no more.
std::array<Range, 64> mappings_with_holes;
std::atomic<size_t> n_mappings = 0;

/// By the space that the file takes, not by SEEK_HOLE: the position in the file belongs to its owner. A few zeros that
/// were not stored do not make a backbone file.
bool has_holes(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
           status.st_blocks * 512 < status.st_size - status.st_size / 8;
}

void remember(const void* address, size_t size) {
    Range& range = mappings_with_holes[n_mappings++ % mappings_with_holes.size()];
    const auto begin = reinterpret_cast<uintptr_t>(address);
    range.begin = begin;
    range.end = begin + size;
}

bool in_mapping_with_holes(const void* address) {
    const auto place = reinterpret_cast<uintptr_t>(address);
    for (const Range& range : mappings_with_holes) {
        if (place >= range.begin && place < range.end) return true;
    }
    return false;
}

}  // namespace

// Signatures, and the kind of error each reports, are those of POSIX.
extern "C" {

__attribute__((visibility("default"))) void* mmap(void* address, size_t size, int protection, int flags, int descriptor,
                                                  off_t offset) noexcept {
    const bool sparse = descriptor >= 0 && has_holes(descriptor);
    if (sparse) flags &= ~MAP_POPULATE;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): that is how the system call returns an address
    void* mapped = reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
    if (sparse && mapped != MAP_FAILED) remember(mapped, size);
    return mapped;
}

__attribute__((visibility("default"))) int posix_madvise(void* address, size_t size, int advice) noexcept {
    if (advice == POSIX_MADV_WILLNEED && in_mapping_with_holes(address)) return 0;
    if (advice == POSIX_MADV_DONTNEED) return 0;  // as the C library: for POSIX it must not lose data
    const int before = errno;
    const int error = syscall(SYS_madvise, address, size, advice) == 0 ? 0 : errno;
    errno = before;
    return error;
}

}  // extern "C"

#endif
