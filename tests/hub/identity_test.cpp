// Registration: who owns the key gets a token, and nobody else.
#include "base/hex.h"
#include "base/secret.h"
#include "base/statements.h"
#include "hub/identity.h"
#include "hub/market_rig.h"

namespace linkcpp::hub {
namespace {

using namespace std::chrono_literals;

class IdentityTest : public testing::Test {
  protected:
    RegistrationProof proof_for(const Identity& at, const std::string& nonce) const {
        RegistrationProof proof{node.public_key(), nonce, {}, ""};
        proof.signature = node.sign(RegistrationStatement{at.hub(), node.public_key(), nonce}.bytes());
        return proof;
    }
    static void expect_refused(const Result<std::string>& result, const char* reason) {
        ASSERT_FALSE(result.ok());
        EXPECT_EQ(result.status().code(), Code::mismatch);
        EXPECT_NE(result.status().message().find(reason), std::string::npos) << result.status().message();
    }

    market::ManualClock clock;
    const SigningKey node = SigningKey::generate(), other = SigningKey::generate(), hub_key = SigningKey::generate();
    Identity identity{clock, hub_key.public_key(), {}};
};

TEST_F(IdentityTest, TheOwnerOfAKeyGetsATokenThatExpires) {
    const auto token = identity.prove(proof_for(identity, identity.challenge(node.public_key())));
    ASSERT_TRUE(token.ok()) << token.status().message();
    const auto id = identity.node_of(*token);
    ASSERT_TRUE(id.ok());
    EXPECT_EQ(*id, node.public_key().fingerprint());
    clock.time += 1h;
    expect_refused(identity.node_of(*token), "expired");
}

TEST_F(IdentityTest, ARegistrationCannotBeReplayed) {
    const RegistrationProof proof = proof_for(identity, identity.challenge(node.public_key()));
    ASSERT_TRUE(identity.prove(proof).ok());
    expect_refused(identity.prove(proof), "used already");
    clock.time += 59s;
    expect_refused(identity.prove(proof), "used already");
    clock.time += 1s;
    expect_refused(identity.prove(proof), "expired");
    // Another spelling of the same nonce is not another nonce.
    RegistrationProof upper = proof_for(identity, identity.challenge(node.public_key()));
    ASSERT_TRUE(identity.prove(upper).ok());
    for (char& c : upper.nonce)
        c = static_cast<char>(std::toupper(c));
    upper.signature = node.sign(RegistrationStatement{identity.hub(), node.public_key(), upper.nonce}.bytes());
    EXPECT_FALSE(identity.prove(upper).ok());
}

TEST_F(IdentityTest, ForgeriesAreRefused) {
    const std::string nonce = identity.challenge(node.public_key());
    RegistrationProof wrong_signature = proof_for(identity, nonce);
    wrong_signature.signature[0] ^= 1;
    expect_refused(identity.prove(wrong_signature), "signature");

    RegistrationProof others_key = proof_for(identity, nonce);
    others_key.signature = other.sign(RegistrationStatement{identity.hub(), node.public_key(), nonce}.bytes());
    expect_refused(identity.prove(others_key), "signature");

    // A nonce that was given for one key is worth nothing to another.
    RegistrationProof stolen{other.public_key(), nonce, {}, ""};
    stolen.signature = other.sign(RegistrationStatement{identity.hub(), other.public_key(), nonce}.bytes());
    expect_refused(identity.prove(stolen), "not of this hub");

    // What was signed for another hub is worth nothing here, even with a nonce of this one.
    RegistrationProof elsewhere = proof_for(identity, nonce);
    elsewhere.signature = node.sign(RegistrationStatement{other.public_key(), node.public_key(), nonce}.bytes());
    expect_refused(identity.prove(elsewhere), "signature");

    // Nor is a receipt, or any other text.
    RegistrationProof text = proof_for(identity, nonce);
    text.signature = node.sign(bytes_of_text(nonce));
    expect_refused(identity.prove(text), "signature");

    for (const std::string& bad :
         {std::string(), std::string("zz"), std::string(7, 'a'), std::string(400, 'a'), nonce + "00"})
        EXPECT_FALSE(identity.prove(proof_for(identity, bad)).ok());
    EXPECT_TRUE(identity.prove(proof_for(identity, nonce)).ok()) << "failed attempts do not use the nonce up";
}

TEST_F(IdentityTest, TokensAreOfOneHubAndNotForgeable) {
    const auto token = identity.prove(proof_for(identity, identity.challenge(node.public_key())));
    ASSERT_TRUE(token.ok());
    Identity restarted(clock, hub_key.public_key(), {});
    expect_refused(restarted.node_of(*token), "restarted");
    for (size_t i = 0; i < token->size(); i += 7) {
        std::string forged = *token;
        forged[i] = forged[i] == '0' ? '1' : '0';
        EXPECT_FALSE(identity.node_of(forged).ok()) << i;
    }
    EXPECT_FALSE(identity.node_of("").ok());
    EXPECT_FALSE(identity.node_of(identity.challenge(node.public_key())).ok()) << "a nonce is no token";
}

TEST_F(IdentityTest, APrivateSwarmWantsItsJoinToken) {
    const Bytes join_token = random_bytes(32);
    Identity closed(clock, hub_key.public_key(), {.join_token = join_token});
    RegistrationProof proof = proof_for(closed, closed.challenge(node.public_key()));
    expect_refused(closed.prove(proof), "private");
    const Bytes statement = RegistrationStatement{closed.hub(), node.public_key(), proof.nonce}.bytes();
    proof.join_proof = hmac_sha256(random_bytes(32), statement).hex();
    expect_refused(closed.prove(proof), "private");
    proof.join_proof = hmac_sha256(join_token, statement).hex();
    EXPECT_TRUE(closed.prove(proof).ok());
    // The proof is of this registration only.
    RegistrationProof again = proof_for(closed, closed.challenge(node.public_key()));
    again.join_proof = proof.join_proof;
    expect_refused(closed.prove(again), "private");
}

}  // namespace
}  // namespace linkcpp::hub
