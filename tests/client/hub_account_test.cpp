// What is remembered of a hub: a key that cannot be read must not count as none, or anybody could be the hub.

#include "client/hub_account.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace linkcpp::client {
namespace {

class HubAccountTest : public testing::Test {
  protected:
    HubAccountTest() {
        std::string pattern = testing::TempDir() + "linkcpp-account-XXXXXX";
        folder = mkdtemp(pattern.data());
    }
    ~HubAccountTest() override { std::filesystem::remove_all(folder); }
    auto open() { return HubAccount::open({*HubUrl::parse("http://127.0.0.1:1"), folder, {}, {}}); }
    void remember(const std::string& text) { std::ofstream(folder + "/hub.pub") << text; }

    std::string folder;
};

TEST_F(HubAccountTest, KnowsNoHubAtFirst) {
    const auto account = open();
    ASSERT_TRUE(account.ok()) << account.status().message();
    EXPECT_FALSE((*account)->hub_key());
    EXPECT_EQ((*open())->node(), (*account)->node()) << "its own key stays";
}

TEST_F(HubAccountTest, RemembersAKey) {
    const PublicKey key = SigningKey::generate().public_key();
    remember(key.hex() + "\n");
    const auto account = open();
    ASSERT_TRUE(account.ok()) << account.status().message();
    EXPECT_EQ((*account)->hub_key()->hex(), key.hex());
}

TEST_F(HubAccountTest, AKnownKeyCountsFromTheBeginningAndIsNotOverruled) {
    const PublicKey key = SigningKey::generate().public_key(), other = SigningKey::generate().public_key();
    const auto known = [&](const PublicKey& hub) {
        return HubAccount::open({*HubUrl::parse("http://127.0.0.1:1"), folder, {}, {}, hub});
    };
    ASSERT_TRUE(known(key).ok());
    EXPECT_EQ((*known(key))->hub_key()->hex(), key.hex());
    remember(other.hex() + "\n");
    const auto account = known(key);
    ASSERT_FALSE(account.ok());
    EXPECT_NE(account.status().message().find("another hub"), std::string::npos) << account.status().message();
    EXPECT_TRUE(known(other).ok());
}

TEST_F(HubAccountTest, AKeyThatCannotBeReadIsNotNone) {
    const std::string key = SigningKey::generate().public_key().hex();
    for (const std::string& text : {std::string(), std::string("\n"), key.substr(1), key + "0", std::string(64, 'x')}) {
        remember(text);
        const auto account = open();
        ASSERT_FALSE(account.ok()) << "'" << text << "'";
        EXPECT_NE(account.status().message().find("hub.pub"), std::string::npos) << account.status().message();
    }
}

}  // namespace
}  // namespace linkcpp::client
