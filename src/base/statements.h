#pragma once
// What is signed: the exact bytes of a registration and of a receipt. Both ends make them here from the same values, so that
// nothing that is signed depends on how JSON was written. Each begins with its purpose, so that a signature for one means
// nothing as another; a field is a line, and no value holds a line break. docs/MARKET.md shows them. Pure functions.

#include "base/signing_key.h"

#include <cstdint>
#include <string>

namespace linkcpp {

/// A node proves to this hub, for this nonce, that it has the key.
struct RegistrationStatement {
    PublicKey hub, node;
    std::string nonce;  ///< as the hub sent it
    Bytes bytes() const;
};

/// What a backbone says of rows that it received in time and accepted.
struct Receipt {
    std::string backbone, payer, node;  ///< node ids
    std::string model;
    uint32_t layer_begin = 0, layer_end = 0, expert_begin = 0, expert_end = 0;  ///< the slice that computed them
    uint64_t rows = 0;
    int64_t period_begin = 0, period_end = 0;  ///< seconds since 1970, by the backbone's clock
    uint64_t sequence = 0;                     ///< counts the backbone's receipts
    bool operator==(const Receipt&) const = default;

    Bytes bytes() const;
    /// SHA-256 of bytes(), in hexadecimal: the same receipt is the same id.
    std::string id() const;
};

/// Printable ASCII and UTF-8 without control characters, 1 to 200 bytes: what may stand in a statement.
bool is_plain_name(const std::string& text);

}  // namespace linkcpp
