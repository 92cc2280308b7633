// The store on a real file: what it keeps, what it refuses, and what survives a crash, a full disk and a damaged file.
#include "hub/store/sqlite.h"
#include "hub/store/store.h"
#include "moe/files.h"

#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace linkcpp::hub {
namespace {

using market::Holding;

class StoreTest : public testing::Test {
  protected:
    StoreTest() { reopen(); }
    void reopen() {
        store.reset();
        auto opened = open_sqlite_store(path);
        ASSERT_TRUE(opened.ok()) << opened.status().message();
        store = std::move(*opened);
    }
    int64_t balance(const std::string& account) const {
        const auto balance = store->balance(account);
        EXPECT_TRUE(balance.ok()) << balance.status().message();
        return balance.ok() ? *balance : INT64_MIN;
    }
    static Store::Payment payment(uint64_t sequence, int64_t amount) {
        Receipt receipt{"backbone", "payer", "node", "m", 0, 1, 0, 64, 1000, 100, 160, sequence};
        return {{receipt, {}}, amount};
    }
    std::vector<Posted> post(const std::vector<Store::Payment>& payments) const {
        const auto posted = store->post(payments);
        EXPECT_TRUE(posted.ok()) << posted.status().message();
        return posted.ok() ? *posted : std::vector<Posted>();
    }

    test::TempFolder folder;
    const std::string path = folder / "hub.sqlite";
    std::unique_ptr<Store> store;
};

TEST_F(StoreTest, KeepsNodes) {
    const PublicKey key = SigningKey::generate().public_key();
    ASSERT_TRUE(store->put_node(key.fingerprint(), key).ok());
    ASSERT_TRUE(store->put_node(key.fingerprint(), key).ok());
    reopen();
    const auto found = store->node_key(key.fingerprint());
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, key);
    EXPECT_EQ(*store->node_key("nobody"), std::nullopt);
}

TEST_F(StoreTest, KeepsPromises) {
    const Holding first{"m", {{0, 1}, {0, 64}}}, second{"m", {{0, 2}, {0, 128}}};
    ASSERT_TRUE(store->promise("A", first, 1000).ok());
    ASSERT_TRUE(store->promise("A", second, 2000).ok());
    ASSERT_TRUE(store->promise("A", first, 3000).ok());
    reopen();
    EXPECT_EQ(*store->promised("A", first), 3000u);
    EXPECT_EQ(*store->promised("A", second), 2000u);
    EXPECT_EQ(*store->promised("B", first), std::nullopt);
    EXPECT_EQ(*store->promised_for_part("A", {"m", {{0, 1}, {3, 5}}}), 3000u) << "the latest that has it";
    EXPECT_EQ(*store->promised_for_part("A", {"m", {{1, 2}, {64, 128}}}), 2000u);
    EXPECT_EQ(*store->promised_for_part("A", {"m", {{0, 3}, {0, 1}}}), std::nullopt);
    for (uint32_t i = 0; i < 300; ++i)
        ASSERT_TRUE(store->promise("A", {"m", {{i, i + 1}, {200, 201}}}, i).ok());
    EXPECT_EQ(*store->promised("A", first), std::nullopt) << "a node cannot fill the disk with promises";
    EXPECT_EQ(*store->promised("A", {"m", {{44, 45}, {200, 201}}}), 44u);
    EXPECT_EQ(*store->promised("A", {"m", {{43, 44}, {200, 201}}}), std::nullopt);
}

TEST_F(StoreTest, ATransferHappensOnce) {
    EXPECT_TRUE(*store->transfer({"grant-1", operator_account, "payer", 500, "grant"}));
    EXPECT_FALSE(*store->transfer({"grant-1", operator_account, "payer", 500, "grant"}));
    EXPECT_FALSE(*store->transfer({"grant-1", operator_account, "else", 9, "another text"}));
    reopen();
    EXPECT_FALSE(*store->transfer({"grant-1", operator_account, "payer", 500, "grant"}));
    EXPECT_EQ(balance("payer"), 500);
    EXPECT_EQ(balance(operator_account), -500);
    EXPECT_FALSE(store->transfer({"none", operator_account, "payer", 0, ""}).ok());
    EXPECT_FALSE(store->transfer({"negative", operator_account, "payer", -5, ""}).ok());
    EXPECT_FALSE(store->transfer({"self", "payer", "payer", 5, ""}).ok());
    EXPECT_EQ(balance("payer"), 500);
}

TEST_F(StoreTest, ReceiptsArePaidOnceAndWithinTheBalance) {
    ASSERT_TRUE(*store->transfer({"grant", operator_account, "payer", 1000, "grant"}));
    EXPECT_EQ(
        post({payment(1, 400), payment(2, 400), payment(1, 400), payment(3, 400), payment(4, 200), payment(5, 0)}),
        (std::vector{Posted::done, Posted::done, Posted::duplicate, Posted::no_credit, Posted::done, Posted::done}));
    EXPECT_EQ(balance("payer"), 0);
    EXPECT_EQ(balance("node"), 1000);
    reopen();
    EXPECT_EQ(post({payment(2, 400), payment(5, 0)}), (std::vector{Posted::duplicate, Posted::duplicate}));
    Store::Payment changed = payment(2, 400);
    changed.signed_receipt.receipt.rows = 999;
    EXPECT_EQ(post({changed}), std::vector{Posted::conflict});
    // What could not be paid can be later.
    ASSERT_TRUE(*store->transfer({"grant-2", operator_account, "payer", 400, "grant"}));
    EXPECT_EQ(post({payment(3, 400)}), std::vector{Posted::done});
    EXPECT_EQ(balance("node"), 1400);
}

TEST_F(StoreTest, ShowsTheEntriesOfAnAccount) {
    ASSERT_TRUE(*store->transfer({"a", operator_account, "x", 10, "first"}));
    ASSERT_TRUE(*store->transfer({"b", operator_account, "y", 20, "not of x"}));
    ASSERT_TRUE(*store->transfer({"c", "x", "y", 3, "third"}));
    const auto all = store->entries("x", 0, 100);
    ASSERT_TRUE(all.ok());
    ASSERT_EQ(all->size(), 2u);
    EXPECT_EQ((*all)[0].id, "a");
    EXPECT_EQ((*all)[1].from, "x");
    EXPECT_EQ((*all)[1].amount, 3);
    EXPECT_GT((*all)[1].at, 1'600'000'000);
    EXPECT_EQ(store->entries("x", (*all)[0].number, 100)->size(), 1u);
    EXPECT_EQ(store->entries("x", 0, 1)->size(), 1u);
    EXPECT_TRUE(store->entries("nobody", 0, 100)->empty());
}

TEST_F(StoreTest, WhatIsRecordedCannotBeChanged) {
    ASSERT_TRUE(*store->transfer({"a", operator_account, "payer", 10, ""}));
    post({payment(1, 1)});
    auto database = Database::open(path);
    ASSERT_TRUE(database.ok());
    for (const char* sql : {"UPDATE transfers SET amount = 1000", "DELETE FROM transfers",
                            "UPDATE receipts SET rows = 9", "DELETE FROM receipts"}) {
        const Status status = database->run(sql);
        EXPECT_NE(status.message().find("immutable"), std::string::npos) << sql;
    }
}

TEST_F(StoreTest, WhatWasAcknowledgedSurvivesKill) {
    ASSERT_TRUE(*store->transfer({"grant", operator_account, "payer", 1'000'000, "grant"}));
    store.reset();
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        auto own = open_sqlite_store(path);
        for (uint64_t sequence = 1; own.ok(); ++sequence) {
            const auto posted = (*own)->post({payment(sequence, 1)});
            if (!posted.ok() || (*posted)[0] != Posted::done) break;
            if (write(pipe_ends[1], &sequence, sizeof sequence) != sizeof sequence) break;
        }
        _exit(1);
    }
    close(pipe_ends[1]);
    uint64_t last = 0;
    while (last < 50)
        ASSERT_EQ(read(pipe_ends[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    for (uint64_t sequence; read(pipe_ends[0], &sequence, sizeof sequence) == static_cast<ssize_t>(sizeof sequence);)
        last = sequence;
    close(pipe_ends[0]);
    reopen();
    // One more may have been posted without anybody being told; the repetition finds out.
    const int64_t posted = balance("node");
    EXPECT_GE(posted, static_cast<int64_t>(last));
    EXPECT_LE(posted, static_cast<int64_t>(last) + 1);
    for (uint64_t sequence = 1; sequence <= last; ++sequence)
        ASSERT_EQ(post({payment(sequence, 1)}), std::vector{Posted::duplicate});
    post({payment(last + 1, 1)});
    EXPECT_EQ(balance("node"), static_cast<int64_t>(last) + 1);
}

/// Files cannot grow beyond `bytes` while this lives: what a full disk is to a program.
class FileLimit {
  public:
    explicit FileLimit(rlim_t bytes) {
        getrlimit(RLIMIT_FSIZE, &before_);
        old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{bytes, before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileLimit() {
        setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, old_handler_);
    }

  private:
    rlimit before_{};
    void (*old_handler_)(int) = nullptr;
};

TEST_F(StoreTest, ADiskThatIsFullLosesNothing) {
    ASSERT_TRUE(*store->transfer({"grant", operator_account, "payer", 1'000'000, "grant"}));
    uint64_t sequence = 0;
    Status error;
    {
        const FileLimit limit(std::filesystem::file_size(path + "-wal") + 100'000);
        while (error.ok() && sequence < 10'000) {
            const auto posted = store->post({payment(++sequence, 1)});
            error = posted.status();
        }
        EXPECT_FALSE(error.ok()) << "the limit was never reached";
        EXPECT_EQ(balance("node"), static_cast<int64_t>(sequence) - 1);
        EXPECT_FALSE(store->post({payment(sequence, 1)}).ok());
    }
    EXPECT_EQ(post({payment(sequence - 1, 1), payment(sequence, 1)}), (std::vector{Posted::duplicate, Posted::done}));
    EXPECT_EQ(balance("node"), static_cast<int64_t>(sequence));
}

TEST_F(StoreTest, ABatchIsRecordedWholeOrNotAtAll) {
    ASSERT_TRUE(*store->transfer({"grant", operator_account, "payer", 100, "grant"}));
    Store::Payment broken = payment(2, 1);
    broken.signed_receipt.receipt.node = "payer";  // a transfer to itself, which the database refuses
    EXPECT_FALSE(store->post({payment(1, 1), broken}).ok());
    EXPECT_EQ(balance("node"), 0);
    EXPECT_EQ(post({payment(1, 1)}), std::vector{Posted::done});
}

TEST_F(StoreTest, RefusesFilesThatAreNotItsOwn) {
    store.reset();
    {
        auto database = Database::open(path);
        ASSERT_TRUE(database->run("PRAGMA user_version=99").ok());
    }
    const auto newer = open_sqlite_store(path);
    ASSERT_FALSE(newer.ok());
    EXPECT_EQ(newer.status().code(), Code::mismatch);
    EXPECT_NE(newer.status().message().find("newer"), std::string::npos);

    test::write_file(folder / "text", Bytes(5000, 'x'));
    EXPECT_EQ(open_sqlite_store(folder / "text").status().code(), Code::corrupt);
    EXPECT_EQ(open_sqlite_store(folder / "no/such/folder").status().code(), Code::io);
}

}  // namespace
}  // namespace linkcpp::hub
