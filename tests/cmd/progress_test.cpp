#include "cmd/progress.h"
#include "cmd/units.h"

#include <gtest/gtest.h>

namespace linkcpp::cmd {
namespace {

using namespace std::chrono_literals;

TEST(Units, BytesAreDecimalWithThreeDigits) {
    EXPECT_EQ(human_bytes(0), "0 bytes");
    EXPECT_EQ(human_bytes(999), "999 bytes");
    EXPECT_EQ(human_bytes(1000), "1.00 kB");
    EXPECT_EQ(human_bytes(9386752), "9.39 MB");
    EXPECT_EQ(human_bytes(53760), "53.8 kB");
    EXPECT_EQ(human_bytes(999499), "999 kB");
    EXPECT_EQ(human_bytes(999500), "1.00 MB");
    EXPECT_EQ(human_bytes(1580000000), "1.58 GB");
    EXPECT_EQ(human_bytes(UINT64_MAX), "18.4 EB");
}

TEST(Units, TimesAreAsOnAClock) {
    EXPECT_EQ(human_time(-1), "0:00");
    EXPECT_EQ(human_time(7.4), "0:07");
    EXPECT_EQ(human_time(59.6), "1:00");
    EXPECT_EQ(human_time(3723), "1:02:03");
}

TEST(Progress, SaysShareRateAndTimeLeft) {
    EXPECT_EQ(progress_text("Writing", 0, 2000, 0s), "Writing    0 %  0 bytes of 2.00 kB");
    EXPECT_EQ(progress_text("Writing", 500000, 2000000, 1s), "Writing   25 %  500 kB of 2.00 MB  500 kB/s  0:03 left");
    EXPECT_EQ(progress_text("Writing", 2000000, 2000000, 4s), "Writing  100 %  2.00 MB of 2.00 MB  500 kB/s  in 0:04");
    EXPECT_EQ(progress_text("Writing", 0, 0, 4s), "Writing  100 %  0 bytes of 0 bytes");
}

}  // namespace
}  // namespace linkcpp::cmd
