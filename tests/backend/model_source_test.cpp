#include "backend/model_source.h"

#include "moe/files.h"

#include <cinttypes>
#include <cstdio>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

namespace linkcpp::backend {
namespace {

constexpr size_t slab_bytes = 64 * 4096;
constexpr int n_expert = 4;

moe::ExpertTensor tensor() {
    moe::ExpertTensor tensor;
    tensor.name = *moe::ExpertTensorName::parse("blk.0.ffn_up_exps.weight");
    tensor.type = 0;
    tensor.ne = {256, slab_bytes / 4 / 256};
    tensor.slab_bytes = slab_bytes;
    return tensor;
}

/// Bytes of the mapping at `address` that are resident in this process.
size_t resident(const void* address) {
    std::ifstream maps("/proc/self/smaps");
    bool found = false;
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        size_t kilobytes = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) == 2)
            found = begin == reinterpret_cast<uintptr_t>(address);
        else if (found && std::sscanf(line.c_str(), "Rss: %zu", &kilobytes) == 1)
            return kilobytes * 1024;
    }
    return 0;
}

TEST(ModelSource, ExpertsOfAMappedFileDoNotStayResident) {
    const test::TempFolder folder;
    const Bytes bytes(n_expert * slab_bytes, 7);
    test::write_file(folder / "model", bytes);
    const int fd = open((folder / "model").c_str(), O_RDONLY | O_CLOEXEC);
    void* address = mmap(nullptr, bytes.size(), PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    ASSERT_NE(address, MAP_FAILED);
    ASSERT_EQ(resident(address), bytes.size());
    ModelSource source;
    source.loaded(tensor(), n_expert, {static_cast<const uint8_t*>(address), bytes.size()});
    // The kernel may map pages around one that is touched again; nobody touches these.
    EXPECT_EQ(resident(address), 0u);
    EXPECT_EQ(static_cast<const uint8_t*>(address)[bytes.size() - 1], 7) << "they stay readable";
    munmap(address, bytes.size());
    close(fd);
}

TEST(ModelSource, MemoryThatIsNoFileKeepsItsBytes) {
    const size_t size = n_expert * slab_bytes;
    void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(address, MAP_FAILED);
    auto* bytes = static_cast<uint8_t*>(address);
    std::fill_n(bytes, size, uint8_t{7});
    ModelSource source;
    source.loaded(tensor(), n_expert, {bytes, size});
    EXPECT_EQ(std::count(bytes, bytes + size, 7), static_cast<long>(size));
    munmap(address, size);
}

}  // namespace
}  // namespace linkcpp::backend
