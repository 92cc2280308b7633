#include "hub/identity.h"

#include "base/hex.h"
#include "base/secret.h"
#include "base/statements.h"

#include <algorithm>

namespace linkcpp::hub {

namespace {

constexpr size_t mac_bytes = 32, expiry_bytes = 8;
constexpr size_t nonce_random_bytes = 16;
constexpr const char* nonce_purpose = "nonce";
constexpr const char* token_purpose = "token";

}  // namespace

Identity::Identity(const Clock& clock, PublicKey hub, IdentitySettings settings)
    : clock_(clock), hub_(hub), settings_(std::move(settings)), secret_(random_bytes(32)) {}

/// expiry | content | MAC(purpose, expiry, content, bound_to)
Bytes Identity::sealed(const char* purpose, Duration lifetime, ByteSpan content, ByteSpan bound_to) const {
    ByteWriter seal;
    seal.u64(static_cast<uint64_t>((clock_.now() + lifetime).count()));
    seal.raw(content);
    ByteWriter message;
    message.string16(purpose);
    message.raw(seal.bytes());
    message.raw(bound_to);
    seal.raw(hmac_sha256(secret_, message.bytes()).bytes);
    return seal.take();
}

Result<Bytes> Identity::unsealed(const char* purpose, ByteSpan seal, ByteSpan bound_to) const {
    if (seal.size() < expiry_bytes + mac_bytes) return {Code::mismatch, "is not of this hub"};
    const ByteSpan signed_part = seal.first(seal.size() - mac_bytes), mac = seal.last(mac_bytes);
    ByteWriter message;
    message.string16(purpose);
    message.raw(signed_part);
    message.raw(bound_to);
    if (!equal_secrets(hmac_sha256(secret_, message.bytes()).bytes, mac))
        return {Code::mismatch, "is not of this hub, or from before it was restarted"};
    const Instant expiry(from_little_endian<uint64_t>(signed_part.data()));
    if (expiry <= clock_.now()) return {Code::mismatch, "has expired"};
    const ByteSpan content = signed_part.subspan(expiry_bytes);
    return Bytes(content.begin(), content.end());
}

std::string Identity::challenge(const PublicKey& node) const {
    return to_hex(sealed(nonce_purpose, settings_.nonce_time, random_bytes(nonce_random_bytes), node.bytes));
}

Result<std::string> Identity::prove(const RegistrationProof& proof) {
    const std::optional<Bytes> nonce = from_hex(proof.nonce);
    if (!nonce || to_hex(*nonce) != proof.nonce) return {Code::mismatch, "the nonce is not lower-case hexadecimal"};
    const Result<Bytes> content = unsealed(nonce_purpose, *nonce, proof.node.bytes);
    if (!content.ok()) return {Code::mismatch, "the nonce " + content.status().message()};
    const Bytes statement = RegistrationStatement{hub_, proof.node, proof.nonce}.bytes();
    if (!verify_signature(proof.node, statement, proof.signature))
        return {Code::mismatch, "the signature is not this key's of this hub's nonce"};
    if (settings_.join_token) {
        const auto given = from_hex(proof.join_proof);
        if (!given || !equal_secrets(*given, hmac_sha256(*settings_.join_token, statement).bytes))
            return {Code::mismatch, "this swarm is private, and the proof of the join token is missing or wrong"};
    }
    {
        const std::lock_guard lock(mutex_);
        used_.erase(used_.begin(), used_.upper_bound(clock_.now()));
        const Instant expiry(from_little_endian<uint64_t>(nonce->data()));
        const auto [first, last] = used_.equal_range(expiry);
        if (std::any_of(first, last, [&](const auto& used) { return used.second == proof.nonce; }))
            return {Code::mismatch, "the nonce was used already"};
        used_.emplace(expiry, proof.nonce);
    }
    ByteWriter token;
    token.string16(proof.node.fingerprint());
    token.raw(random_bytes(8));
    return to_hex(sealed(token_purpose, settings_.token_time, token.bytes(), {}));
}

Result<std::string> Identity::node_of(const std::string& token) const {
    const std::optional<Bytes> seal = from_hex(token);
    if (!seal) return {Code::mismatch, "the token is not of this hub"};
    const Result<Bytes> content = unsealed(token_purpose, *seal, {});
    if (!content.ok()) return {Code::mismatch, "the token " + content.status().message()};
    return ByteReader(*content).string16();
}

}  // namespace linkcpp::hub
