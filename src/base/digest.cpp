#include "base/digest.h"

#include "base/hex.h"

#include <bit>
#include <openssl/evp.h>

namespace linkcpp {

struct Sha256::State {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) { EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr); }
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(ByteSpan bytes) { EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()); }

Digest Sha256::finish() {
    Digest digest;
    EVP_DigestFinal_ex(state_->context, digest.bytes.data(), nullptr);
    return digest;
}

Digest sha256(ByteSpan bytes) {
    Sha256 hash;
    hash.update(bytes);
    return hash.finish();
}

std::string Digest::hex() const { return to_hex(bytes); }

namespace {

Digest hash_leaf(ByteSpan data) {
    const uint8_t prefix = 0;
    Sha256 hash;
    hash.update({&prefix, 1});
    hash.update(data);
    return hash.finish();
}

Digest hash_node(const Digest& left, const Digest& right) {
    const uint8_t prefix = 1;
    Sha256 hash;
    hash.update({&prefix, 1});
    hash.update(left.bytes);
    hash.update(right.bytes);
    return hash.finish();
}

Digest subtree(const Bytes* leaves, size_t count) {
    if (count == 1) return hash_leaf(leaves[0]);
    const size_t left = std::bit_floor(count - 1);
    return hash_node(subtree(leaves, left), subtree(leaves + left, count - left));
}

}  // namespace

Digest merkle_root(const std::vector<Bytes>& leaves) {
    return leaves.empty() ? sha256({}) : subtree(leaves.data(), leaves.size());
}

}  // namespace linkcpp
