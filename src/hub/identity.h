#pragma once
// Who a node is: the owner of an Ed25519 key. A node registers by signing a nonce of this hub together with its purpose and the
// hub's key, and gets a token that it shows with every request for a while. A private swarm asks for a proof of the join
// token on top, which is not sent itself. Nonces and tokens carry their own expiry under a MAC whose key lives as long as
// the process, so a hub keeps nothing for who only asks; a nonce that was used is remembered until it would have expired.
//
// No I/O; clock given. Thread-safe. Secrets never go to a log, nor into an error.

#include "base/clock.h"
#include "base/signing_key.h"

#include <map>
#include <mutex>
#include <optional>

namespace linkcpp::hub {

struct IdentitySettings {
    Duration nonce_time = std::chrono::minutes(1);
    Duration token_time = std::chrono::hours(1);
    std::optional<Bytes> join_token;  ///< without one the swarm is open
};

/// What a node sends to prove itself.
struct RegistrationProof {
    PublicKey node;
    std::string nonce;
    Signature signature{};   ///< of RegistrationStatement
    std::string join_proof;  ///< hexadecimal HMAC-SHA256 of RegistrationStatement under the join token; private swarms
};

class Identity {
  public:
    Identity(const Clock& clock, PublicKey hub, IdentitySettings settings);

    const PublicKey& hub() const { return hub_; }
    bool is_private() const { return settings_.join_token.has_value(); }
    Duration nonce_time() const { return settings_.nonce_time; }
    Duration token_time() const { return settings_.token_time; }

    /// A nonce for this key only.
    std::string challenge(const PublicKey& node) const;
    /// A token. Errors: mismatch, for everything that is wrong, with what it is.
    Result<std::string> prove(const RegistrationProof& proof);
    /// The id of the node whose token this is. Errors: mismatch (not a token of this hub, or it has expired).
    Result<std::string> node_of(const std::string& token) const;

  private:
    Bytes sealed(const char* purpose, Duration lifetime, ByteSpan content, ByteSpan bound_to) const;
    Result<Bytes> unsealed(const char* purpose, ByteSpan seal, ByteSpan bound_to) const;

    const Clock& clock_;
    const PublicKey hub_;
    const IdentitySettings settings_;
    const Bytes secret_;
    std::mutex mutex_;
    std::multimap<Instant, std::string> used_;  // protected by mutex_; by expiry
};

}  // namespace linkcpp::hub
