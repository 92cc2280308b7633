#include "net/loop.h"

#include <gtest/gtest.h>

namespace linkcpp::net {
namespace {

TEST(Address, parses_hosts_and_ports) {
    const std::pair<const char*, Address> good[] = {
        {"127.0.0.1:80", {"127.0.0.1", 80}},
        {"worker.example:50071", {"worker.example", 50071}},
        {"[::1]:7", {"::1", 7}},
        {":9", {"127.0.0.1", 9}},
        {"9", {"127.0.0.1", 9}},
        {"0.0.0.0:0", {"0.0.0.0", 0}},
        {"h:65535", {"h", 65535}},
    };
    for (const auto& [text, expected] : good) {
        Result<Address> address = Address::parse(text);
        ASSERT_TRUE(address.ok()) << text;
        EXPECT_EQ(*address, expected) << text;
    }
    EXPECT_EQ(Address::parse("8", "::1")->str(), "[::1]:8");
}

TEST(Address, refuses_what_is_not_an_address) {
    for (const char* text : {"", ":", "host", "host:", "host:65536", "host:-1", "host:1x", "::1:5", "[::1]", "[::1]5",
                             "[x]:1", "a:b:c", "99999", " 1"}) {
        EXPECT_FALSE(Address::parse(text).ok()) << text;
    }
}

TEST(Address, writes_what_it_parses) {
    for (const char* text : {"127.0.0.1:80", "[::1]:7", "name:1"})
        EXPECT_EQ(Address::parse(text)->str(), text);
}

TEST(Address, knows_loopback) {
    for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"}) {
        EXPECT_TRUE((Address{host, 1}).is_loopback()) << host;
    }
    for (const char* host :
         {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "127.example", "localhost.example", "", "::ffff:10.0.0.1"}) {
        EXPECT_FALSE((Address{host, 1}).is_loopback()) << host;
    }
}

}  // namespace
}  // namespace linkcpp::net
