#pragma once
// The tables, as the steps by which a database comes from one version to the next. Steps that were released are never changed;
// a new version adds one. The version is SQLite's user_version.

namespace linkcpp::hub {

constexpr const char* schema_steps[] = {
    R"(
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    public_key BLOB NOT NULL UNIQUE,
    first_seen INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE promises (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    node TEXT NOT NULL,
    model TEXT NOT NULL,
    layer_begin INTEGER NOT NULL, layer_end INTEGER NOT NULL,
    expert_begin INTEGER NOT NULL, expert_end INTEGER NOT NULL,
    reward INTEGER NOT NULL,
    UNIQUE (node, model, layer_begin, layer_end, expert_begin, expert_end)
);

CREATE TABLE receipts (
    id TEXT PRIMARY KEY,
    backbone TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    payer TEXT NOT NULL,
    node TEXT NOT NULL,
    model TEXT NOT NULL,
    layer_begin INTEGER NOT NULL, layer_end INTEGER NOT NULL,
    expert_begin INTEGER NOT NULL, expert_end INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    period_begin INTEGER NOT NULL, period_end INTEGER NOT NULL,
    signature BLOB NOT NULL,
    at INTEGER NOT NULL,
    UNIQUE (backbone, sequence)
) WITHOUT ROWID;

CREATE TABLE transfers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    payer TEXT NOT NULL,
    payee TEXT NOT NULL,
    amount INTEGER NOT NULL CHECK (amount > 0),
    reason TEXT NOT NULL,
    at INTEGER NOT NULL,
    CHECK (payer <> payee)
);
CREATE INDEX transfers_by_payer ON transfers (payer, number, amount);
CREATE INDEX transfers_by_payee ON transfers (payee, number, amount);

CREATE TRIGGER transfers_stay BEFORE UPDATE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers are immutable'); END;
CREATE TRIGGER transfers_last BEFORE DELETE ON transfers BEGIN SELECT RAISE(ABORT, 'transfers are immutable'); END;
CREATE TRIGGER receipts_stay BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are immutable'); END;
CREATE TRIGGER receipts_last BEFORE DELETE ON receipts BEGIN SELECT RAISE(ABORT, 'receipts are immutable'); END;
)",
};

constexpr int schema_version = sizeof schema_steps / sizeof schema_steps[0];

}  // namespace linkcpp::hub
