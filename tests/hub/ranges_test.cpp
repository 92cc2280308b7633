// Ranges of requests, as text.

#include "hub/ranges.h"

#include <gtest/gtest.h>

namespace linkcpp::hub {
namespace {

TEST(IndexRange, ReadsWhatIsDocumented) {
    EXPECT_EQ(*parse_index_range("0:8"), std::pair(0, 8));
    EXPECT_EQ(*parse_index_range("3"), std::pair(3, 4));
    EXPECT_EQ(*parse_index_range(":"), std::pair(0, -1));
    EXPECT_EQ(*parse_index_range("5:"), std::pair(5, -1));
    EXPECT_EQ(*parse_index_range(":7"), std::pair(0, 7));
    for (const char* wrong : {"", "a", "-1:2", "1:-2", "+1:2", " 1:2", "1 :2", "2:1", "1:1", ":0", "1:2:3", "0x1:2",
                              "1e3:", "1234567890", "::"})
        EXPECT_FALSE(parse_index_range(wrong).ok()) << wrong;
}

TEST(Etags, AreComparedStrongly) {
    EXPECT_TRUE(etag_listed("\"a\"", "\"a\""));
    EXPECT_TRUE(etag_listed(" \"b\" ,\"a\"", "\"a\""));
    EXPECT_TRUE(etag_listed("*", "\"a\""));
    EXPECT_FALSE(etag_listed("W/\"a\"", "\"a\""));
    EXPECT_FALSE(etag_listed("\"ab\", a", "\"a\""));
}

}  // namespace
}  // namespace linkcpp::hub
