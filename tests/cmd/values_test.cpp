// Values of options and environment variables, as people write them.

#include "cmd/values.h"

#include <gtest/gtest.h>

namespace linkcpp::cmd {
namespace {

TEST(Values, Ranges) {
    const auto range = [](const char* text) { return *parse_range(text, 48); };
    EXPECT_EQ(range("0:4"), (std::pair{0, 4}));
    EXPECT_EQ(range(":4"), (std::pair{0, 4}));
    EXPECT_EQ(range("4:"), (std::pair{4, 48}));
    EXPECT_EQ(range(":"), (std::pair{0, 48}));
    EXPECT_EQ(range("7"), (std::pair{7, 8}));
    for (const char* wrong : {"", "x", "4:2", "3:3", "-1:2", "1:2:3", "1:2x", " 1:2", "99999999999:2", "0x1:2"}) {
        const auto result = parse_range(wrong, 48);
        EXPECT_FALSE(result.ok()) << wrong;
    }
    EXPECT_NE(parse_range("4:2", 48).status().message().find("'4:2'"), std::string::npos)
        << "the error quotes the value";
}

TEST(Values, Sizes) {
    EXPECT_EQ(*parse_size("512M"), 512000000u);
    EXPECT_EQ(*parse_size("1.5 GB"), 1500000000u);
    EXPECT_EQ(*parse_size("2GiB"), 2147483648u);
    EXPECT_EQ(*parse_size("64k"), 64000u);
    EXPECT_EQ(*parse_size("1000"), 1000u);
    for (const char* wrong : {"", "M", "-1", "1X", "1MM", "1iB", "nan", "1e99", "infinity"}) {
        EXPECT_FALSE(parse_size(wrong).ok()) << wrong;
    }
}

TEST(Values, Shares) {
    EXPECT_EQ(*parse_share("0"), 0);
    EXPECT_EQ(*parse_share("1"), 1);
    EXPECT_EQ(*parse_share("0.25"), 0.25);
    EXPECT_EQ(*parse_share("1/256"), 1.0 / 256);
    for (const char* wrong : {"", "2", "-1", "1/0", "0/0", "1/", "/2", "1%", "x", "nan", "1/2/3"}) {
        EXPECT_FALSE(parse_share(wrong).ok()) << wrong;
    }
}

TEST(Values, Addresses) {
    const auto addresses = parse_addresses("127.0.0.1:5,worker:6,,127.0.0.1:5");
    ASSERT_TRUE(addresses.ok());
    EXPECT_EQ(*addresses, (std::vector<net::Address>{{"127.0.0.1", 5}, {"worker", 6}})) << "named once";
    EXPECT_TRUE(parse_addresses("")->empty());
    EXPECT_FALSE(parse_addresses("127.0.0.1:99999").ok());
}

}  // namespace
}  // namespace linkcpp::cmd
