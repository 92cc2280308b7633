#include "hub/store/sqlite.h"

namespace linkcpp::hub {

Result<Database> Database::open(const std::string& path) {
    Database database;
    database.path_ = path;
    sqlite3* handle = nullptr;
    const int opened = sqlite3_open_v2(path.c_str(), &handle,
                                       SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
    database.handle_.reset(handle);
    if (opened != SQLITE_OK) return database.error();
    sqlite3_extended_result_codes(handle, 1);
    sqlite3_busy_timeout(handle, 5000);
    LINKCPP_TRY(database.run("PRAGMA journal_mode=WAL"));
    LINKCPP_TRY(database.run("PRAGMA synchronous=FULL"));
    LINKCPP_TRY(database.run("PRAGMA foreign_keys=ON"));
    return database;
}

Status Database::run(const char* sql) {
    return sqlite3_exec(get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK ? Status() : error();
}

Status Database::error() const {
    const int code = get() ? sqlite3_errcode(get()) & 0xff : SQLITE_NOMEM;
    const std::string message = path_ + ": " + (get() ? sqlite3_errmsg(get()) : "out of memory");
    switch (code) {
        case SQLITE_FULL: return {Code::exhausted, message + "; make room on the disk"};
        case SQLITE_NOMEM: return {Code::exhausted, message};
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB: return {Code::corrupt, message};
        default: return {Code::io, message};
    }
}

Query::Query(Database& database, const char* sql) : database_(database) {
    sqlite3_stmt* statement = nullptr;
    failed_ = sqlite3_prepare_v2(database.get(), sql, -1, &statement, nullptr) != SQLITE_OK;
    statement_.reset(statement);
}

Query& Query::bind(int64_t value) {
    failed_ = failed_ || sqlite3_bind_int64(statement_.get(), ++bound_, value) != SQLITE_OK;
    return *this;
}

Query& Query::bind(const std::string& value) {
    failed_ = failed_ || sqlite3_bind_text64(statement_.get(), ++bound_, value.data(), value.size(), SQLITE_TRANSIENT,
                                             SQLITE_UTF8) != SQLITE_OK;
    return *this;
}

Query& Query::bind(ByteSpan value) {
    failed_ = failed_ || sqlite3_bind_blob64(statement_.get(), ++bound_, value.data(), value.size(),
                                             SQLITE_TRANSIENT) != SQLITE_OK;
    return *this;
}

bool Query::step() {
    if (failed_) return false;
    const int code = sqlite3_step(statement_.get());
    failed_ = code != SQLITE_ROW && code != SQLITE_DONE;
    return code == SQLITE_ROW;
}

Status Query::run() {
    while (step()) {
    }
    return failed_ ? database_.error() : Status();
}

std::string Query::text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_.get(), column));
    return text ? std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column))) : "";
}

Bytes Query::blob(int column) const {
    const auto* blob = static_cast<const uint8_t*>(sqlite3_column_blob(statement_.get(), column));
    return blob ? Bytes(blob, blob + sqlite3_column_bytes(statement_.get(), column)) : Bytes();
}

}  // namespace linkcpp::hub
