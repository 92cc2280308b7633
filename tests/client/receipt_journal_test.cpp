// Receipts on the disk: none is lost, none is there twice, whatever a crash left of the file.

#include "client/receipt_journal.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <set>
#include <sys/resource.h>
#include <thread>

namespace linkcpp::client {
namespace {

class Journal : public testing::Test {
  protected:
    Journal() {
        std::string pattern = testing::TempDir() + "linkcpp-journal-XXXXXX";
        folder = mkdtemp(pattern.data());
    }
    ~Journal() override { std::filesystem::remove_all(folder); }

    std::vector<Receipt> receipts(size_t n, uint64_t rows = 1) {
        Receipt receipt{"backbone", "backbone", "node", "m", 0, 1, 0, 8, rows, 100, 101, 0};
        return std::vector<Receipt>(n, receipt);
    }
    std::vector<std::string> ids(size_t limit = 1'000'000) {
        std::vector<std::string> all;
        const auto waiting = journal().waiting(limit);
        for (const SignedReceipt& receipt : *waiting) {
            EXPECT_TRUE(verify_signature(key.public_key(), receipt.receipt.bytes(), receipt.signature));
            all.push_back(receipt.receipt.id());
        }
        return all;
    }
    ReceiptJournal journal() { return {folder, key}; }
    std::string file() const { return folder + "/receipts"; }

    std::string folder;
    SigningKey key = SigningKey::generate();
};

TEST_F(Journal, KeepsWhatWasNotAnsweredInOrder) {
    ASSERT_TRUE(journal().add(receipts(5)).ok());
    const auto first = ids();
    ASSERT_EQ(first.size(), 5u);
    EXPECT_EQ(ids(2), std::vector(first.begin(), first.begin() + 2));
    ASSERT_TRUE(journal().answered({first[0], first[3]}).ok());
    EXPECT_EQ(ids(), (std::vector{first[1], first[2], first[4]}));
    ASSERT_TRUE(journal().answered({first[3], "unknown"}).ok()) << "twice does no harm";
    ASSERT_TRUE(journal().add(receipts(1)).ok());
    EXPECT_EQ(ids().size(), 4u);
}

TEST_F(Journal, WhatACrashTornOffIsLeftOut) {
    ASSERT_TRUE(journal().add(receipts(2)).ok());
    const auto before = ids();
    const auto size = std::filesystem::file_size(file());
    ASSERT_TRUE(journal().add(receipts(1)).ok());
    const auto whole = std::filesystem::file_size(file());
    for (auto cut = size; cut < whole; cut += 37) {
        std::filesystem::resize_file(file(), cut);
        EXPECT_EQ(ids(), before) << cut;
        ASSERT_TRUE(journal().add(receipts(1)).ok());
        EXPECT_EQ(ids().size(), 3u) << cut;
    }
}

TEST_F(Journal, NoSequenceNumberStandsForTwoReceipts) {
    std::set<uint64_t> seen;
    const auto look = [&] {
        const auto waiting = journal().waiting(1000);
        for (const SignedReceipt& receipt : *waiting)
            EXPECT_TRUE(seen.insert(receipt.receipt.sequence).second) << receipt.receipt.sequence;
    };
    ASSERT_TRUE(journal().add(receipts(20)).ok());
    look();
    ASSERT_TRUE(journal().answered(ids()).ok());
    ASSERT_TRUE(journal().add(receipts(20)).ok());
    look();
}

TEST_F(Journal, DoesNotGrowForever) {
    for (int i = 0; i < 40; ++i) {
        ASSERT_TRUE(journal().add(receipts(50)).ok());
        auto all = ids();
        all.pop_back();  // one stays for ever
        ASSERT_TRUE(journal().answered(all).ok());
    }
    EXPECT_LT(std::filesystem::file_size(file()), 600u << 10);
    EXPECT_EQ(ids().size(), 1u) << "which was answered the next time";
}

TEST_F(Journal, SeveralAtOnceLoseNothing) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([this] {
            for (int i = 0; i < 20; ++i) {
                ASSERT_TRUE(journal().add(receipts(2)).ok());
                ASSERT_TRUE(journal().answered({journal().waiting(1)->at(0).receipt.id()}).ok());
            }
        });
    }
    for (auto& thread : threads)
        thread.join();
    const auto all = ids();
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
    EXPECT_GE(all.size(), 80u);
    EXPECT_LT(all.size(), 160u);
}

TEST_F(Journal, AWriteThatFailsHalfWayKeepsNone) {
    ASSERT_TRUE(journal().add(receipts(2)).ok());
    const auto before = ids();
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t whole = std::exchange(limit.rlim_cur, std::filesystem::file_size(file()) * 3 / 2 + 20);
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_FALSE(journal().add(receipts(2)).ok()) << "one would have fitted";
    limit.rlim_cur = whole;
    setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_EQ(ids(), before);
    ASSERT_TRUE(journal().add(receipts(1)).ok());
    EXPECT_EQ(ids().size(), 3u);
}

}  // namespace
}  // namespace linkcpp::client
