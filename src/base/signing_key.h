#pragma once
// Ed25519: the keys by which nodes, backbones and hubs are known. A private key lives in one file of its owner's, readable by
// nobody else, and is never logged or sent. Immutable after it was made; any thread.

#include "base/bytes.h"
#include "base/status.h"

#include <array>
#include <memory>
#include <string>

namespace linkcpp {

struct PublicKey {
    std::array<uint8_t, 32> bytes{};
    auto operator<=>(const PublicKey&) const = default;
    bool operator==(const PublicKey&) const = default;

    std::string hex() const;
    /// 64 hexadecimal digits. Errors: invalid_argument.
    static Result<PublicKey> parse(const std::string& hex);
    /// The first 16 bytes of the key's SHA-256, in hexadecimal: the id of a node; for a hub what people compare.
    std::string fingerprint() const;
};

using Signature = std::array<uint8_t, 64>;

/// False for anything but this key's signature of exactly these bytes.
bool verify_signature(const PublicKey& key, ByteSpan message, const Signature& signature);

class SigningKey {
  public:
    static SigningKey generate();
    /// The key in the file (PEM, PKCS#8); at first a new one, written with mode 0600, durably, before it is used. Two processes
    /// that start at once end up with the same key. Errors: io, corrupt (not such a key), invalid_argument (others can read
    /// the file).
    static Result<SigningKey> load_or_create(const std::string& path);

    SigningKey(SigningKey&&) noexcept;
    SigningKey& operator=(SigningKey&&) noexcept;
    ~SigningKey();

    const PublicKey& public_key() const { return public_key_; }
    Signature sign(ByteSpan message) const;

  private:
    struct Handle;
    explicit SigningKey(std::unique_ptr<Handle> handle);
    static Result<SigningKey> load(const std::string& path);
    std::unique_ptr<Handle> handle_;
    PublicKey public_key_;
};

}  // namespace linkcpp
