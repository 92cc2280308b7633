// Which workers a backbone talks to: as the hub says, through a hub's restart, and not thousands.

#include "client/roster.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <utility>

namespace linkcpp::client {
namespace {

using namespace std::chrono_literals;

/// What counts for RLIMIT_DATA, bytes: private writable memory.
rlim_t data_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmData:", 0) == 0) return std::stoull(line.substr(7)) * 1024;
    }
    return 0;
}

PlacementHolder holder(const std::string& name, uint32_t begin, uint32_t end, const std::string& numeric_class = "") {
    return {"node-" + name, name + ":1", numeric_class, {{"m", 0, 2, begin, end}}};
}

class RosterTest : public testing::Test {
  protected:
    std::string update(std::vector<PlacementHolder> holders, Instant now = 0s) {
        roster.update({"m", 1, std::move(holders)}, now);
        std::string names;
        for (const auto& [address, node] : roster.members())
            names += address.substr(0, address.find(':'));
        return names;
    }
    Roster roster{{.self = "me", .numeric_class = "here", .replicas = 2}};
};

TEST_F(RosterTest, FollowsTheHub) {
    EXPECT_EQ(update({holder("a", 0, 8), holder("b", 8, 16)}), "ab");
    EXPECT_EQ(roster.members().at("a:1"), "node-a");
    EXPECT_EQ(update({holder("b", 8, 16), holder("c", 0, 8)}), "bc");
    EXPECT_EQ(update({}), "");
}

TEST_F(RosterTest, AHubThatWasAwayMayHaveForgottenThem) {
    update({holder("a", 0, 8), holder("b", 8, 16)});
    roster.hub_was_away(100s);
    EXPECT_EQ(update({}, 100s), "ab");
    EXPECT_EQ(update({holder("b", 8, 16)}, 105s), "ab");
    EXPECT_GT(roster.grace_left(105s), 0s);
    EXPECT_EQ(update({holder("b", 8, 16), holder("c", 0, 8)}, 110s), "abc");
    EXPECT_EQ(roster.grace_left(300s), 0s);
    EXPECT_EQ(update({holder("b", 8, 16), holder("c", 0, 8)}, 300s), "bc");
}

TEST_F(RosterTest, EnoughForEveryExpertAndNoMore) {
    std::vector<PlacementHolder> many;
    for (char name = 'a'; name <= 'z'; ++name)
        many.push_back(holder(std::string(1, name), 0, 8));
    EXPECT_EQ(update(many).size(), 2u);
    const std::string chosen = update(many);
    many.push_back(holder("A", 4, 12));
    EXPECT_EQ(update(many), "A" + chosen) << "the only one with some experts, and nobody is exchanged for no reason";
    std::erase_if(many, [&](const auto& one) { return one.address[0] == chosen[0]; });
    EXPECT_EQ(update(many).size(), 3u) << "who leaves is replaced";

    Roster other{{.self = "other", .numeric_class = "", .replicas = 2}},
        third{{.self = "third", .numeric_class = "", .replicas = 2}};
    other.update({"m", 1, many}, 0s);
    third.update({"m", 1, many}, 0s);
    EXPECT_FALSE(other.members() == third.members() && other.members() == roster.members()) << "the load spreads";
}

TEST_F(RosterTest, TheSameNumericClassComesFirst) {
    std::vector<PlacementHolder> many;
    for (char name = 'a'; name <= 'z'; ++name)
        many.push_back(holder(std::string(1, name), 0, 8, name == 'p' || name == 'q' ? "here" : "there"));
    EXPECT_EQ(update(many), "pq");
}

TEST_F(RosterTest, AnAddressThatTwoClaimPaysNobody) {
    auto thief = holder("a", 0, 8);
    thief.node = "thief";
    update({holder("a", 0, 8), thief});
    EXPECT_EQ(roster.members().at("a:1"), "");
    update({holder("a", 0, 8)});
    EXPECT_EQ(roster.members().at("a:1"), "node-a");
}

TEST_F(RosterTest, NonsenseOfAHubTakesNoMemory) {
    auto huge = holder("a", 0, UINT32_MAX), reversed = holder("b", 9, 3);
    huge.holds[0].layer_end = UINT32_MAX / 2;
    huge.holds[0].layer_begin = huge.holds[0].layer_end - 1;
    EXPECT_EQ(update({huge, reversed}), "");

    // As much as can be said: it counts, but in little memory.
    auto everything = holder("c", 0, UINT32_MAX);
    everything.holds[0].layer_end = UINT32_MAX;
    rlimit limit{};
    getrlimit(RLIMIT_DATA, &limit);
    const rlim_t whole = std::exchange(limit.rlim_cur, data_bytes() + (100u << 20));
    setrlimit(RLIMIT_DATA, &limit);
    EXPECT_NO_THROW(EXPECT_EQ(update({everything, reversed}), "c"));
    limit.rlim_cur = whole;
    setrlimit(RLIMIT_DATA, &limit);
}

}  // namespace
}  // namespace linkcpp::client
