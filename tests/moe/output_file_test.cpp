#include "moe/backbone_writer.h"
#include "moe/files.h"
#include "moe/output_file.h"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

namespace linkcpp::moe {
namespace {

using test::TempFolder;

/// While it lives, no file of this process may become larger: writes fail in the middle, as on a full disk.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(uint64_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

/// A disk of one megabyte, where the test may mount one.
class TinyDisk {
  public:
    explicit TinyDisk(const std::string& path) : path_(path) {
        mounted_ = mkdir(path.c_str(), 0700) == 0 && mount("tmpfs", path.c_str(), "tmpfs", 0, "size=1m") == 0;
    }
    ~TinyDisk() {
        if (mounted_) umount(path_.c_str());
    }
    bool mounted() const { return mounted_; }

  private:
    std::string path_;
    bool mounted_ = false;
};

size_t n_files(const std::string& folder) {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(OutputFile, AppearsWholeOrNotAtAll) {
    const TempFolder folder;
    const uint8_t data[] = {1, 2, 3};
    {
        auto out = OutputFile::create(folder / "f", 3);
        ASSERT_TRUE(out.ok());
        ASSERT_TRUE(out->write_at(0, data).ok());
    }
    EXPECT_EQ(folder.n_files(), 0u);
    auto out = OutputFile::create(folder / "f", 3);
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->write_at(0, data).ok());
    EXPECT_FALSE(std::filesystem::exists(folder / "f"));
    ASSERT_TRUE(out->publish().ok());
    EXPECT_EQ(test::read_file(folder / "f"), Bytes({1, 2, 3}));
    EXPECT_EQ(folder.n_files(), 1u);
}

TEST(OutputFile, WhatACrashLeftBehindIsReplaced) {
    const TempFolder folder;
    test::write_file(folder / "f.part", Bytes(100, 7));
    auto out = OutputFile::create(folder / "f", 1);
    ASSERT_TRUE(out.ok());
    ASSERT_TRUE(out->write_at(0, Bytes{9}).ok());
    ASSERT_TRUE(out->publish().ok());
    EXPECT_EQ(test::read_file(folder / "f"), Bytes{9});
}

TEST(OutputFile, TwoWritersExcludeEachOther) {
    const TempFolder folder;
    auto first = OutputFile::create(folder / "f", 1);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(OutputFile::create(folder / "f", 1).status().code(), Code::unavailable);
    ASSERT_TRUE(first->publish().ok());
    EXPECT_TRUE(OutputFile::create(folder / "f", 1).ok());
    EXPECT_TRUE(std::filesystem::exists(folder / "f"));
}

TEST(OutputFile, AFullDiskIsSaidBeforeAnythingIsWritten) {
    const TempFolder folder;
    const auto out = OutputFile::create(folder / "f", uint64_t{1} << 60);
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), Code::exhausted);
    EXPECT_EQ(folder.n_files(), 0u);
}

TEST(FullDisk, LeavesNoHalfSlice) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    const auto plan = plan_slice(*model, {});
    const FileSizeLimit limit(3000000);
    const auto written = write_slice(*model, *plan, folder / "s.gguf");
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.status().code(), Code::exhausted) << written.status().message();
    EXPECT_EQ(folder.n_files(), 0u);
}

TEST(FullDisk, LeavesNoHalfBackbone) {
    const TempFolder folder;
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    const FileSizeLimit limit(3000000);
    EXPECT_EQ(write_backbone(*model, folder / "b.gguf").status().code(), Code::exhausted);
    EXPECT_EQ(folder.n_files(), 0u);
}

TEST(FullDisk, OnARealOneToo) {
    const TempFolder folder;
    const TinyDisk disk(folder / "disk");
    if (!disk.mounted()) GTEST_SKIP() << "this test may not mount a disk";
    auto model = ModelFile::open(test::capitals_model());
    ASSERT_TRUE(model.ok());
    const auto plan = plan_slice(*model, {});
    EXPECT_EQ(write_slice(*model, *plan, folder / "disk/s.gguf").status().code(), Code::exhausted);
    EXPECT_EQ(write_backbone(*model, folder / "disk/b.gguf").status().code(), Code::exhausted);
    // Past the check that comes first: the disk fills while the file is written.
    {
        auto out = OutputFile::create(folder / "disk/f", 1);
        ASSERT_TRUE(out.ok());
        EXPECT_EQ(out->write_at(0, Bytes(2 << 20, 1)).code(), Code::exhausted);
    }
    EXPECT_EQ(n_files(folder / "disk"), 0u);
}

}  // namespace
}  // namespace linkcpp::moe
