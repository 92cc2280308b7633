#include "hub/store/schema.h"
#include "hub/store/sqlite.h"
#include "hub/store/store.h"

#include <ctime>
#include <fmt/format.h>
#include <mutex>

namespace linkcpp::hub {

namespace {

Status migrate(Database& database) {
    Query version(database, "PRAGMA user_version");
    if (!version.step()) return database.error();
    const int64_t found = version.integer(0);
    if (found > schema_version) {
        return {Code::mismatch, fmt::format("{} was made by a newer linkcpp-hub (schema {}, this one knows {}); use "
                                            "that one, or another --data folder",
                                            database.path(), found, schema_version)};
    }
    for (int64_t step = found; step < schema_version; ++step) {
        Transaction transaction(database);
        LINKCPP_TRY(transaction.begun());
        LINKCPP_TRY(database.run(schema_steps[step]));
        LINKCPP_TRY(database.run(fmt::format("PRAGMA user_version={}", step + 1).c_str()));
        LINKCPP_TRY(transaction.commit());
    }
    return {};
}

int64_t wall_clock() { return static_cast<int64_t>(std::time(nullptr)); }

void bind_block(Query& query, const market::Block& block) {
    query.bind(int64_t{block.layers.begin}).bind(int64_t{block.layers.end});
    query.bind(int64_t{block.experts.begin}).bind(int64_t{block.experts.end});
}

class SqliteStore final : public Store {
  public:
    explicit SqliteStore(Database database) : database_(std::move(database)) {}

    Status put_node(const std::string& id, const PublicKey& key) override {
        const std::lock_guard lock(mutex_);
        Query known(database_, "SELECT 1 FROM nodes WHERE id = ?");
        if (known.bind(id).step()) return {};
        const Relaxed relaxed(database_);
        return Query(database_, "INSERT INTO nodes (id, public_key, first_seen) VALUES (?, ?, ?)")
            .bind(id)
            .bind(key.bytes)
            .bind(wall_clock())
            .run();
    }

    Result<std::optional<PublicKey>> node_key(const std::string& id) override {
        const std::lock_guard lock(mutex_);
        Query query(database_, "SELECT public_key FROM nodes WHERE id = ?");
        if (!query.bind(id).step()) return none_or_error<PublicKey>(query);
        const Bytes bytes = query.blob(0);
        PublicKey key;
        if (bytes.size() != key.bytes.size()) return {Code::corrupt, database_.path() + ": a key of a wrong size"};
        std::copy(bytes.begin(), bytes.end(), key.bytes.begin());
        return std::optional(key);
    }

    Status promise(const std::string& node, const market::Holding& what, uint64_t reward) override {
        const std::lock_guard lock(mutex_);
        const Relaxed relaxed(database_);
        Transaction transaction(database_);
        LINKCPP_TRY(transaction.begun());
        Query put(database_,
                  "REPLACE INTO promises (node, model, layer_begin, layer_end, expert_begin, expert_end, reward) "
                  "VALUES (?, ?, ?, ?, ?, ?, ?)");
        put.bind(node).bind(what.model);
        bind_block(put, what.block);
        LINKCPP_TRY(put.bind(static_cast<int64_t>(reward)).run());
        LINKCPP_TRY(Query(database_, "DELETE FROM promises WHERE node = ?1 AND number <= (SELECT number FROM promises "
                                     "WHERE node = ?1 ORDER BY number DESC LIMIT 1 OFFSET 256)")
                        .bind(node)
                        .run());
        return transaction.commit();
    }

    Result<std::optional<uint64_t>> promised(const std::string& node, const market::Holding& what) override {
        const std::lock_guard lock(mutex_);
        Query query(database_, "SELECT reward FROM promises WHERE node = ? AND model = ? AND layer_begin = ? AND "
                               "layer_end = ? AND expert_begin = ? AND expert_end = ?");
        query.bind(node).bind(what.model);
        bind_block(query, what.block);
        return reward_from(query);
    }

    Result<std::optional<uint64_t>> promised_for_part(const std::string& node, const market::Holding& part) override {
        const std::lock_guard lock(mutex_);
        Query query(database_, "SELECT reward FROM promises WHERE node = ? AND model = ? AND layer_begin <= ? AND "
                               "layer_end >= ? AND expert_begin <= ? AND expert_end >= ? ORDER BY number DESC LIMIT 1");
        query.bind(node).bind(part.model);
        bind_block(query, part.block);
        return reward_from(query);
    }

    Result<bool> transfer(const Transfer& transfer) override {
        const std::lock_guard lock(mutex_);
        Transaction transaction(database_);
        LINKCPP_TRY(transaction.begun());
        Query known(database_, "SELECT 1 FROM transfers WHERE id = ?");
        if (known.bind(transfer.id).step()) return false;
        if (known.failed()) return database_.error();
        LINKCPP_TRY(move(transfer));
        LINKCPP_TRY(transaction.commit());
        return true;
    }

    Result<std::vector<Posted>> post(const std::vector<Payment>& payments) override {
        const std::lock_guard lock(mutex_);
        Transaction transaction(database_);
        LINKCPP_TRY(transaction.begun());
        std::vector<Posted> results;
        for (const Payment& payment : payments) {
            Result<Posted> posted = post_one(payment);
            if (!posted.ok()) return posted.status();
            results.push_back(*posted);
        }
        LINKCPP_TRY(transaction.commit());
        return results;
    }

    Result<int64_t> balance(const std::string& account) override {
        const std::lock_guard lock(mutex_);
        return balance_of(account);
    }

    Result<std::vector<LedgerEntry>> entries(const std::string& account, int64_t after, int limit) override {
        const std::lock_guard lock(mutex_);
        Query query(
            database_,
            "SELECT number, id, payer, payee, reason, amount, at FROM transfers WHERE number > ?2 AND "
            "number IN (SELECT number FROM transfers WHERE payer = ?1 AND number > ?2 UNION "
            "SELECT number FROM transfers WHERE payee = ?1 AND number > ?2 ORDER BY number LIMIT ?3) ORDER BY number");
        query.bind(account).bind(after).bind(int64_t{limit});
        std::vector<LedgerEntry> entries;
        while (query.step()) {
            entries.push_back({query.integer(0), query.text(1), query.text(2), query.text(3), query.text(4),
                               query.integer(5), query.integer(6)});
        }
        if (query.failed()) return database_.error();
        return entries;
    }

  private:
    template <typename T>
    Result<std::optional<T>> none_or_error(const Query& query) const {
        if (query.failed()) return database_.error();
        return std::optional<T>();
    }
    Result<std::optional<uint64_t>> reward_from(Query& query) {
        if (!query.step()) return none_or_error<uint64_t>(query);
        return std::optional(static_cast<uint64_t>(query.integer(0)));
    }

    Status move(const Transfer& transfer) {
        return Query(database_,
                     "INSERT INTO transfers (id, payer, payee, amount, reason, at) VALUES (?, ?, ?, ?, ?, ?)")
            .bind(transfer.id)
            .bind(transfer.from)
            .bind(transfer.to)
            .bind(transfer.amount)
            .bind(transfer.reason)
            .bind(wall_clock())
            .run();
    }

    Result<int64_t> balance_of(const std::string& account) {
        Query query(database_, "SELECT coalesce((SELECT sum(amount) FROM transfers WHERE payee = ?1), 0) - "
                               "coalesce((SELECT sum(amount) FROM transfers WHERE payer = ?1), 0)");
        if (!query.bind(account).step()) return database_.error();
        return query.integer(0);
    }

    Result<Posted> post_one(const Payment& payment) {
        const Receipt& receipt = payment.signed_receipt.receipt;
        const std::string id = receipt.id();
        Query known(database_, "SELECT id FROM receipts WHERE backbone = ? AND sequence = ?");
        known.bind(receipt.backbone).bind(static_cast<int64_t>(receipt.sequence));
        if (known.step()) return known.text(0) == id ? Posted::duplicate : Posted::conflict;
        if (known.failed()) return database_.error();
        if (payment.amount > 0) {
            const Result<int64_t> balance = balance_of(receipt.payer);
            if (!balance.ok()) return balance.status();
            if (receipt.payer != operator_account && *balance < payment.amount) return Posted::no_credit;
            LINKCPP_TRY(
                move({id, receipt.payer, receipt.node, payment.amount,
                      fmt::format("{} rows of {}, layers {}:{}, experts {}:{}", receipt.rows, receipt.model,
                                  receipt.layer_begin, receipt.layer_end, receipt.expert_begin, receipt.expert_end)}));
        }
        LINKCPP_TRY(insert(payment.signed_receipt, id));
        return Posted::done;
    }

    Status insert(const SignedReceipt& signed_receipt, const std::string& id) {
        const Receipt& receipt = signed_receipt.receipt;
        Query query(database_, "INSERT INTO receipts (id, backbone, sequence, payer, node, model, layer_begin, "
                               "layer_end, expert_begin, expert_end, rows, period_begin, period_end, signature, at) "
                               "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
        query.bind(id).bind(receipt.backbone).bind(static_cast<int64_t>(receipt.sequence));
        query.bind(receipt.payer).bind(receipt.node).bind(receipt.model);
        bind_block(query, {{receipt.layer_begin, receipt.layer_end}, {receipt.expert_begin, receipt.expert_end}});
        query.bind(static_cast<int64_t>(receipt.rows)).bind(receipt.period_begin).bind(receipt.period_end);
        return query.bind(signed_receipt.signature).bind(wall_clock()).run();
    }

    std::mutex mutex_;
    Database database_;  // protected by mutex_
};

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path) {
    Result<Database> database = Database::open(path);
    if (!database.ok()) return database.status();
    LINKCPP_TRY(migrate(*database));
    return std::unique_ptr<Store>(std::make_unique<SqliteStore>(std::move(*database)));
}

}  // namespace linkcpp::hub
