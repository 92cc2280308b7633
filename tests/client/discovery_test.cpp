// What strangers on the network may announce, and what is made of it.

#include "client/discovery.h"

#include <gtest/gtest.h>

namespace linkcpp::client {
namespace {

using namespace std::chrono_literals;

Announcement announcement(const std::string& address = "192.168.1.5", uint16_t port = 19000) {
    return {.address = address, .port = port, .txt = {"version=9", "scheme=http"}};
}

TEST(Discovery, AHub) {
    auto hub = hub_of(announcement());
    ASSERT_TRUE(hub.ok());
    EXPECT_EQ(hub->str(), "http://192.168.1.5:19000");
    Announcement tls = announcement("10.0.0.1", 65535);
    tls.txt = {"scheme=https", "more=of this"};
    hub = hub_of(tls);
    ASSERT_TRUE(hub.ok());
    EXPECT_EQ(hub->str(), "https://10.0.0.1:65535");
}

TEST(Discovery, OnlyAddressesOfMachines) {
    for (const char* address :
         {"", "hub", "hub.local", "0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.251", "240.0.0.1", "255.255.255.255",
          "1.2.3", "1.2.3.4:5", "1.2.3.4/x", "::1", "http://1.2.3.4", "256.1.1.1"})
        EXPECT_FALSE(hub_of(announcement(address)).ok()) << address;
    EXPECT_FALSE(hub_of(announcement("192.168.1.5", 0)).ok());
}

TEST(Discovery, ThisMachineOnlyFromThisMachine) {
    Announcement here = announcement("127.0.0.1");
    here.over_loopback = true;
    EXPECT_TRUE(hub_of(here).ok());
}

TEST(Discovery, OneSchemeThatWeSpeak) {
    using Txt = std::vector<std::string>;
    for (const Txt& txt :
         {Txt{}, Txt{"scheme"}, Txt{"scheme="}, Txt{"scheme=ftp"}, Txt{"scheme=HTTP "}, Txt{"xscheme=http"},
          Txt{"scheme=http", "scheme=https"}, Txt{std::string("scheme=http\0x", 13)}}) {
        Announcement wrong = announcement();
        wrong.txt = txt;
        EXPECT_FALSE(hub_of(wrong).ok()) << (txt.empty() ? "" : txt.front());
    }
}

TEST(Discovery, NoHub) {
    EXPECT_EQ(only_hub({}, 5s).status().message(),
              "no hub answered on this network within 5 s; name it with --hub http://HOST:19000");
}

TEST(Discovery, OneHubHeardTwice) {
    const HubUrl hub{.tls = false, .host = "10.0.0.1", .port = 1};
    const auto found = only_hub({hub, hub}, 5s);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, hub);
}

TEST(Discovery, SeveralHubsAreListedButNotWithoutEnd) {
    std::vector<HubUrl> hubs;
    for (uint16_t port = 101; port <= 120; ++port)
        hubs.push_back({.tls = false, .host = "10.0.0.1", .port = port});
    const Status status = only_hub(hubs, 5s).status();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    EXPECT_NE(status.message().find("http://10.0.0.1:108 and 12 more; name one with --hub"), std::string::npos)
        << status.message();
}

}  // namespace
}  // namespace linkcpp::client
