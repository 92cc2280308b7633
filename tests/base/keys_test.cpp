// Keys and secrets: known answers, what is refused, and who may read a key's file.
#include "base/hex.h"
#include "base/secret.h"
#include "base/signing_key.h"
#include "base/statements.h"
#include "moe/files.h"

#include <gtest/gtest.h>
#include <thread>

namespace linkcpp {
namespace {

mode_t mode_of(const std::string& path) {
    struct stat stat {};
    return ::stat(path.c_str(), &stat) == 0 ? stat.st_mode & 0777 : 0;
}

TEST(Hex, ThereAndBack) {
    EXPECT_EQ(to_hex(Bytes{0x00, 0x9f, 0xff}), "009fff");
    EXPECT_EQ(from_hex("009fFF"), (Bytes{0x00, 0x9f, 0xff}));
    EXPECT_FALSE(from_hex("0").has_value());
    EXPECT_FALSE(from_hex("0g").has_value());
    EXPECT_FALSE(from_hex("0x").has_value());
    EXPECT_FALSE(from_hex_array<2>("0102ff").has_value());
}

TEST(Secret, HmacIsThatOfRfc4231) {
    EXPECT_EQ(hmac_sha256(bytes_of_text("Jefe"), bytes_of_text("what do ya want for nothing?")).hex(),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(SigningKey, SignatureIsThatOfRfc8032) {
    const auto key = PublicKey::parse("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    const auto signature = from_hex_array<64>("92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
                                              "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00");
    ASSERT_TRUE(key.ok() && signature.has_value());
    EXPECT_TRUE(verify_signature(*key, Bytes{0x72}, *signature));
    EXPECT_FALSE(verify_signature(*key, Bytes{0x73}, *signature));
    Signature forged = *signature;
    forged[40] ^= 1;
    EXPECT_FALSE(verify_signature(*key, Bytes{0x72}, forged));
    EXPECT_FALSE(verify_signature(SigningKey::generate().public_key(), Bytes{0x72}, *signature));
}

TEST(SigningKey, IsMadeOnceAndKeptFromOthers) {
    test::TempFolder folder;
    const std::string path = folder / "node.key";
    const auto made = SigningKey::load_or_create(path);
    ASSERT_TRUE(made.ok()) << made.status().message();
    EXPECT_EQ(mode_of(path), 0600u);
    EXPECT_EQ(folder.n_files(), 1u);
    const auto again = SigningKey::load_or_create(path);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(made->public_key(), again->public_key());
    EXPECT_TRUE(verify_signature(made->public_key(), bytes_of_text("text"), again->sign(bytes_of_text("text"))));

    chmod(path.c_str(), 0644);
    const auto readable = SigningKey::load_or_create(path);
    ASSERT_FALSE(readable.ok());
    EXPECT_NE(readable.status().message().find("chmod 600"), std::string::npos);
}

TEST(SigningKey, ProcessesThatStartAtOnceShareOne) {
    test::TempFolder folder;
    std::vector<std::string> keys(8);
    std::vector<std::thread> threads;
    for (std::string& key : keys) {
        threads.emplace_back([&key, path = folder / "key"] {
            const auto loaded = SigningKey::load_or_create(path);
            if (loaded.ok()) key = loaded->public_key().hex();
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    for (const std::string& key : keys)
        EXPECT_EQ(key, keys[0]);
    EXPECT_EQ(keys[0].size(), 64u);
    EXPECT_EQ(folder.n_files(), 1u);
}

TEST(SigningKey, DoesNotTakeWhatIsNone) {
    test::TempFolder folder;
    test::write_file(folder / "key", Bytes{'n', 'o', 'n', 'e'});
    chmod((folder / "key").c_str(), 0600);
    EXPECT_EQ(SigningKey::load_or_create(folder / "key").status().code(), Code::corrupt);
    EXPECT_EQ(SigningKey::load_or_create(folder / "no/such/folder").status().code(), Code::io);
    EXPECT_FALSE(PublicKey::parse("abcd").ok());
}

TEST(Statements, AreTheBytesThatTheDocumentsShow) {
    const auto key = *PublicKey::parse("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
    const Bytes registration = RegistrationStatement{key, key, "00ff"}.bytes();
    EXPECT_EQ(std::string(registration.begin(), registration.end()),
              "linkcpp node registration 1\n"
              "hub 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\n"
              "nonce 00ff\n"
              "node 3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c\n");
    const Receipt receipt{"b0", "c0", "d0", "m", 0, 2, 16, 32, 1234, 1700000000, 1700000060, 7};
    const Bytes bytes = receipt.bytes();
    EXPECT_EQ(std::string(bytes.begin(), bytes.end()),
              "linkcpp receipt 1\nbackbone b0\npayer c0\nnode d0\nmodel m\nlayers 0:2\nexperts 16:32\nrows 1234\n"
              "period 1700000000:1700000060\nsequence 7\n");
    EXPECT_EQ(receipt.id(), sha256(bytes).hex());
}

TEST(Statements, NamesCannotBreakOutOfTheirLine) {
    EXPECT_TRUE(is_plain_name("Qwen3.5 122B \xc3\xa9"));
    for (const char* bad : {"", "a\nrows 9", "a\r", "a\x7f", "\t"})
        EXPECT_FALSE(is_plain_name(bad));
    EXPECT_FALSE(is_plain_name(std::string(201, 'a')));
}

}  // namespace
}  // namespace linkcpp
