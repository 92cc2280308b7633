#pragma once
// SQLite in this project's words: a database, a prepared statement, a transaction that is undone unless it was committed.
// Inside of src/hub/store.

#include "base/bytes.h"
#include "base/status.h"

#include <memory>
#include <sqlite3.h>
#include <string>

namespace linkcpp::hub {

class Database {
  public:
    /// WAL, and every commit on the disk before it is reported (synchronous=FULL). Errors: io, corrupt.
    static Result<Database> open(const std::string& path);

    Status run(const char* sql);
    /// The last error as a Status: exhausted for a full disk, corrupt, else io.
    Status error() const;
    sqlite3* get() const { return handle_.get(); }
    const std::string& path() const { return path_; }

  private:
    struct Close {
        void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
    };
    std::unique_ptr<sqlite3, Close> handle_;
    std::string path_;
};

/// One execution of a statement; parameters by position, from 1.
class Query {
  public:
    Query(Database& database, const char* sql);

    Query& bind(int64_t value);
    Query& bind(const std::string& value);
    Query& bind(ByteSpan value);

    /// True: there is a row. False: there is no more, or failed() tells.
    bool step();
    bool failed() const { return failed_; }
    /// Runs a statement that gives no rows.
    Status run();

    int64_t integer(int column) const { return sqlite3_column_int64(statement_.get(), column); }
    std::string text(int column) const;
    Bytes blob(int column) const;

  private:
    struct Finalize {
        void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    };
    Database& database_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
    int bound_ = 0;
    bool failed_ = false;
};

/// While this lives, commits survive the end of the process but perhaps not of the machine, and cost no wait for the disk. The
/// next commit without it makes them as safe as itself. Not within a transaction.
class Relaxed {
  public:
    explicit Relaxed(Database& database) : database_(database) { (void)database_.run("PRAGMA synchronous=NORMAL"); }
    ~Relaxed() { (void)database_.run("PRAGMA synchronous=FULL"); }
    Relaxed(const Relaxed&) = delete;
    Relaxed& operator=(const Relaxed&) = delete;

  private:
    Database& database_;
};

class Transaction {
  public:
    explicit Transaction(Database& database) : database_(database), status_(database.run("BEGIN IMMEDIATE")) {}
    ~Transaction() {
        if (status_.ok() && !committed_) (void)database_.run("ROLLBACK");
    }
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;

    const Status& begun() const { return status_; }
    Status commit() {
        LINKCPP_TRY(database_.run("COMMIT"));
        committed_ = true;
        return {};
    }

  private:
    Database& database_;
    Status status_;
    bool committed_ = false;
};

}  // namespace linkcpp::hub
