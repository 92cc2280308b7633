// libllama maps a model and asks for all of it at once (MAP_POPULATE, then MADV_WILLNEED). For a backbone file that is
// mostly holes this fills the page cache with zeros: 20 seconds and 9 GB for a model whose dense part is 1 GB. There is no
// parameter for it, so `linkcpp` defines mmap and posix_madvise itself: a shared library's call finds the program's
// definition first. For stock tools the same code is a library of its own, for LD_PRELOAD (a plugin comes too late); so it
// uses nothing but the C library. Files without holes are mapped exactly as before.

#include "cmd/file_holes.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/mman.h>
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

bool descriptor_has_holes(int descriptor) {
    struct stat status {};
    return fstat(descriptor, &status) == 0 && linkcpp::cmd::has_holes(status);
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

void* map(void* address, size_t size, int protection, int flags, int descriptor, off_t offset) {
    const bool sparse = descriptor >= 0 && descriptor_has_holes(descriptor);
    if (sparse) flags &= ~MAP_POPULATE;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): that is how the system call returns an address
    void* mapped = reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, descriptor, offset));
    if (sparse && mapped != MAP_FAILED) remember(mapped, size);
    return mapped;
}

}  // namespace

// Signatures, and the kind of error each reports, are those of POSIX.
extern "C" {

__attribute__((visibility("default"))) void* mmap(void* address, size_t size, int protection, int flags, int descriptor,
                                                  off_t offset) noexcept {
    return map(address, size, protection, flags, descriptor, offset);
}

// What programs call that were built with 64-bit file offsets by name.
__attribute__((visibility("default"))) void* mmap64(void* address, size_t size, int protection, int flags,
                                                    int descriptor, off64_t offset) noexcept {
    return map(address, size, protection, flags, descriptor, offset);
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
