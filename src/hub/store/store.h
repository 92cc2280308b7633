#pragma once
// Everything that a hub must not forget: nodes and their keys, what nodes were promised, receipts, and the ledger. What is
// recorded is immutable; an amount is a positive integer that moves from one account to another, under a key that makes a
// repetition harmless; a balance is the sum of transfers and stands nowhere. Receipts and transfers that were reported as done
// are on the disk; nodes and promises survive a crash of the process, but the last ones perhaps not a power failure: nodes
// register again and promises are made again. Thread-safe.
//
// This is the interface; open_sqlite_store() is the one there is.

#include "base/signing_key.h"
#include "base/statements.h"
#include "hub/market/block.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace linkcpp::hub {

/// Where credits come from: the only account that may owe.
constexpr const char* operator_account = "operator";

struct Transfer {
    std::string id;  ///< the idempotency key
    std::string from, to;
    int64_t amount = 0;  ///< credits, > 0
    std::string reason;  ///< for people
};

/// A transfer as an account sees it.
struct LedgerEntry {
    int64_t number = 0;  ///< grows; entries of one account have gaps
    std::string id, from, to, reason;
    int64_t amount = 0;
    int64_t at = 0;  ///< seconds since 1970
};

struct SignedReceipt {
    Receipt receipt;
    Signature signature{};
};

enum class Posted {
    done,       ///< recorded, and paid if it was worth a whole credit
    duplicate,  ///< it was recorded before
    conflict,   ///< another receipt has this sequence number
    no_credit,  ///< the payer does not have as much; nothing was recorded
};

class Store {
  public:
    virtual ~Store() = default;

    /// Errors of everything here: io, exhausted (disk full), corrupt; then nothing has changed.
    virtual Status put_node(const std::string& id, const PublicKey& key) = 0;
    virtual Result<std::optional<PublicKey>> node_key(const std::string& id) = 0;

    /// The reward for what a node holds; replaces an earlier one for exactly the same. The newest 256 of a node are kept.
    virtual Status promise(const std::string& node, const market::Holding& what, uint64_t reward) = 0;
    virtual Result<std::optional<uint64_t>> promised(const std::string& node, const market::Holding& what) = 0;
    /// The latest promise for a segment that contains this part.
    virtual Result<std::optional<uint64_t>> promised_for_part(const std::string& node, const market::Holding& part) = 0;

    /// Moves credits once; false: this id was there already (then nothing happens, whatever the rest says).
    virtual Result<bool> transfer(const Transfer& transfer) = 0;

    struct Payment {
        SignedReceipt signed_receipt;
        int64_t amount = 0;  ///< from payer to node; 0: only recorded
    };
    /// Records receipts whose signatures were checked, in one transaction. Result by position.
    virtual Result<std::vector<Posted>> post(const std::vector<Payment>& payments) = 0;

    virtual Result<int64_t> balance(const std::string& account) = 0;
    /// Entries with a number above `after`, oldest first, at most `limit`.
    virtual Result<std::vector<LedgerEntry>> entries(const std::string& account, int64_t after, int limit) = 0;
};

/// The database file is made when there is none, and brought to this version's schema when it is older. Errors: io,
/// corrupt, mismatch (made by a newer version).
Result<std::unique_ptr<Store>> open_sqlite_store(const std::string& path);

}  // namespace linkcpp::hub
