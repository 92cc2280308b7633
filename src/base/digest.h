#pragma once
// SHA-256 digests and the Merkle tree over them, the basis of every identity here (slab, slice, model).
// The tree is that of RFC 9162 section 2.1.1 (leaf = H(0x00 || data), node = H(0x01 || left || right), the left subtree
// holds the largest power of two of leaves smaller than the count), so that a single leaf can be proved later.

#include "base/bytes.h"

#include <array>
#include <compare>
#include <memory>
#include <string>
#include <vector>

namespace linkcpp {

struct Digest {
    std::array<uint8_t, 32> bytes{};

    auto operator<=>(const Digest&) const = default;
    bool operator==(const Digest&) const = default;
    /// 64 lower-case hexadecimal digits.
    std::string hex() const;
    /// The first eight digits, for messages.
    std::string brief() const { return hex().substr(0, 8); }
};

/// Streaming SHA-256. One object hashes one message; not thread-safe.
class Sha256 {
  public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    void update(ByteSpan bytes);
    Digest finish();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

Digest sha256(ByteSpan bytes);

/// The Merkle root over leaf *data* (hashed with the leaf prefix here). The root of no leaves is sha256 of nothing.
Digest merkle_root(const std::vector<Bytes>& leaves);

}  // namespace linkcpp
