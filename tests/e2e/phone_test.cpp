// The worker for 64-bit ARM, one static file, in a decode of this machine: another numeric class. It runs under qemu, once
// for each set of instructions that it was compiled for. Skipped where `make worker-aarch64` cannot build it.

#include "e2e/swarm.h"

#include <elf.h>
#include <set>

namespace linkcpp::test {
namespace {

constexpr const char* emulator = "/usr/bin/qemu-aarch64-static";

class Phone : public Swarm {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(LINKCPP_AARCH64_WORKER))
            GTEST_SKIP() << LINKCPP_AARCH64_WORKER << " is not there; `make worker-aarch64` builds it";
        if (!std::filesystem::exists(emulator))
            GTEST_SKIP() << emulator << " is not there; `scripts/bootstrap --aarch64` installs it";
    }
    /// A worker on an emulated processor; its numeric class is in `numeric_class`.
    std::string start_phone(const std::string& processor, const std::string& path) {
        workers.push_back(std::make_unique<Process>(
            std::vector<std::string>{emulator, "-cpu", processor, LINKCPP_AARCH64_WORKER, "--serve", "127.0.0.1:0",
                                     "--threads", "1", "--model", path}));
        numeric_class = workers.back()->wait_for_line("numeric class ").value_or("none");
        const auto address = workers.back()->wait_for_line("serving on ");
        if (!address) ADD_FAILURE() << "the worker did not start: " << workers.back()->wait().err;
        addresses.push_back(address.value_or("127.0.0.1:1"));
        return addresses.back();
    }

    std::string numeric_class;
};

template <typename T>
T read_at(const Bytes& file, size_t offset) {
    T value{};
    EXPECT_LE(offset + sizeof value, file.size());
    if (offset + sizeof value <= file.size()) std::memcpy(&value, file.data() + offset, sizeof value);
    return value;
}

// What is copied to a phone is one file: it names no interpreter and no library.
TEST_F(Phone, IsOneStaticFile) {
    const Bytes file = read_file(LINKCPP_AARCH64_WORKER);
    const auto header = read_at<Elf64_Ehdr>(file, 0);
    ASSERT_EQ(std::memcmp(header.e_ident, ELFMAG, SELFMAG), 0);
    EXPECT_EQ(header.e_machine, EM_AARCH64);
    bool code_is_writable = false;
    for (size_t i = 0; i < header.e_phnum; ++i) {
        const auto segment = read_at<Elf64_Phdr>(file, header.e_phoff + i * sizeof(Elf64_Phdr));
        EXPECT_NE(segment.p_type, Elf64_Word{PT_INTERP});
        code_is_writable = code_is_writable || ((segment.p_flags & PF_W) != 0 && (segment.p_flags & PF_X) != 0);
        if (segment.p_type == PT_LOAD) {
            EXPECT_EQ(segment.p_align % 16384, 0u) << "newer phones have pages of 16 KB";
        }
        for (size_t at = 0; segment.p_type == PT_DYNAMIC && at < segment.p_filesz; at += sizeof(Elf64_Dyn))
            EXPECT_NE(read_at<Elf64_Dyn>(file, segment.p_offset + at).d_tag, DT_NEEDED);
    }
    EXPECT_FALSE(code_is_writable) << "or an executable stack";
}

TEST_F(Phone, TakesPartInADecodeWithTheKernelsOfItsProcessor) {
    const std::string first = slice("0:1", ""), rest = slice("1:", ""), sparse = backbone();
    start_worker({rest});
    std::set<std::string> classes;
    for (const auto& [processor, has, lacks] : {std::tuple{"cortex-a57", "NEON", "DOTPROD"},
                                                {"cortex-a76", "DOTPROD", "MATMUL_INT8"},
                                                {"max", "MATMUL_INT8", "AVX"}}) {
        SCOPED_TRACE(processor);
        const std::string phone = start_phone(processor, first);
        EXPECT_NE(numeric_class.find(has), std::string::npos) << numeric_class;
        EXPECT_EQ(numeric_class.find(lacks), std::string::npos) << numeric_class;
        classes.insert(numeric_class);
        const nlohmann::json report = verify(capitals_model(), sparse, 12, {"-p", "The capital of France is"});
        ASSERT_EQ(report["exit_code"], 0) << report.dump(2);
        EXPECT_EQ(report["tokens_identical"], 12);
        EXPECT_EQ(report["one_numeric_class"], false);
        EXPECT_EQ(report["class_by_worker"][phone], numeric_class);
        EXPECT_GT(report["rows_by_worker"][phone], 0);
        EXPECT_EQ(report["rows_local"], 0);
        EXPECT_GT(report["logits_cosine"], 0.99);
        EXPECT_LT(report["logits_cosine"], 1.0) << "if its bits were ours, classes would be needless";
        workers.pop_back();
        addresses.pop_back();
    }
    EXPECT_EQ(classes.size(), 3u);
}

TEST_F(Phone, IsRefusedWhereEveryBitMustBeThatOfALocalRun) {
    const std::string first = slice("0:1", ""), rest = slice("1:", ""), sparse = backbone();
    start_worker({rest});
    const std::string phone = start_phone("max", first);
    const nlohmann::json refused = verify(capitals_model(), sparse, 4, {"--policy", "exact"});
    EXPECT_NE(refused["exit_code"], 0);
    EXPECT_NE(refused["err"].get<std::string>().find("computes with other instructions"), std::string::npos)
        << refused["err"];

    // With weights of its own the backbone computes what the phone may not; the other worker goes on.
    const nlohmann::json local = verify(capitals_model(), "", 12, {"--policy", "exact"});
    expect_exact(local, 12);
    EXPECT_GT(local["rows_local"], 0);
    EXPECT_GT(local["rows_remote"], 0);
    EXPECT_EQ(local["rows_by_worker"].value(phone, 0), 0);
}

}  // namespace
}  // namespace linkcpp::test
