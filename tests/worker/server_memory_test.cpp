// The server and peers that want too much: memory, places, time and log lines are bounded, and others are served.
#include "worker/server_fixture.h"

namespace linkcpp::worker {
namespace {

TEST_F(ServerTest, a_frame_dripped_byte_by_byte_has_a_deadline) {
    start();
    auto slow = connect(), good = connect();
    const Bytes frame = wire::encode(header(1), rows(1000));
    int n_seconds = 0;
    for (; n_seconds < 120 && !slow->closed; ++n_seconds) {
        slow->link->send(Bytes(1, frame[static_cast<size_t>(n_seconds)]));
        run(1s);
    }
    EXPECT_TRUE(slow->closed);
    EXPECT_GE(n_seconds, 30);
    EXPECT_LE(n_seconds, 35);
    expect_alive(*good);
}

TEST_F(ServerTest, a_slow_link_has_the_time_that_its_frame_needs) {
    start();
    network.path(address).bytes_per_second = 160e3;
    auto slow = connect();
    slow->link->send(wire::encode(header(1), rows(40000)));  // 5 s
    run(60s);
    EXPECT_TRUE(slow->answers[1].refused || slow->answers[1].complete);
    EXPECT_FALSE(slow->closed);
}

TEST_F(ServerTest, results_that_nobody_takes_give_way_when_others_need_the_memory) {
    constexpr uint64_t bound = 4u << 20;
    start({.max_peer_bytes = bound});
    std::vector<std::unique_ptr<TestBackbone>> greedy;
    for (int i = 0; i < 30; ++i) {  // results of 160 KB each
        greedy.push_back(connect(true, 0));
        greedy.back()->give_credit = false;
        greedy.back()->link->send(wire::encode(header(1), rows(20000)));
        run(50ms);
        EXPECT_LE(server->held_bytes(), bound);
    }
    auto good = connect();
    good->link->send(wire::encode(header(1), rows(20000)));
    run(50ms);
    ASSERT_TRUE(good->answers[1].refused.has_value());
    EXPECT_EQ(good->answers[1].refused->code, RefuseCode::busy);
    run(8s);
    EXPECT_FALSE(good->closed);
    good->link->send(wire::encode(header(2), rows(20000)));
    run(1s);
    EXPECT_TRUE(good->answers[2].complete);
}

/// The link sends from the memory of the result, so a few bytes that are not taken keep all of it.
TEST_F(ServerTest, results_whose_end_nobody_takes_give_way_when_others_need_the_memory) {
    constexpr uint64_t bound = 2u << 20;
    start({.max_peer_bytes = bound});
    std::vector<std::unique_ptr<TestBackbone>> greedy;
    for (int i = 0; i < 30; ++i) {
        greedy.push_back(connect());
        greedy.back()->link->set_reading(false);
        // The first result fills the system's buffers, and the second one's last 40 KB of 110 find no room there.
        for (const uint32_t n_rows : {20000u, 12000u}) {
            greedy.back()->link->send(wire::encode(header(n_rows), rows(n_rows)));
            run(50ms);
        }
        EXPECT_LE(server->held_bytes(), bound);
    }
    EXPECT_GT(server->held_bytes(), bound / 2);
    run(8s);
    EXPECT_LT(server->held_bytes(), bound / 2) << "others were refused for it";
    auto good = connect();
    good->link->send(wire::encode(header(1), rows(20000)));
    run(1s);
    EXPECT_TRUE(good->answers[1].complete);
}

TEST_F(ServerTest, without_need_for_memory_a_result_may_wait) {
    start();
    auto slow = connect(true, 0);
    slow->give_credit = false;
    slow->link->send(wire::encode(header(1), rows(5000)));
    run(30s);
    EXPECT_FALSE(slow->closed);
    slow->give_credit = true;
    slow->link->send(wire::encode(wire::Credit{1 << 20}));
    run(1s);
    EXPECT_TRUE(slow->answers[1].complete);
}

TEST_F(ServerTest, frames_that_never_end_share_one_bound) {
    // Every connection may have the first 256 KiB of a frame.
    constexpr uint64_t bound = 2u << 20, one_frame = 1u << 20, beginnings = 20u << 18;
    start({.max_peer_bytes = bound});
    auto good = connect();
    std::vector<std::unique_ptr<TestBackbone>> half;
    Bytes frame(wire::header_bytes + one_frame);
    wire::FrameHeader compute = header(1);
    compute.type = wire::FrameType::compute;
    seal_frame(compute, frame);
    frame.resize(frame.size() - 1);
    uint64_t most = 0;
    for (int i = 0; i < 20; ++i) {
        half.push_back(connect());
        half.back()->link->send(frame);
        for (int step = 0; step < 10; ++step) {
            run(1ms);
            most = std::max(most, server->held_bytes());
        }
    }
    EXPECT_GE(most, bound);
    EXPECT_LE(most, bound + 2 * one_frame + beginnings);
    run(5min);
    for (const auto& backbone : half)
        EXPECT_TRUE(backbone->closed);
    EXPECT_LT(server->held_bytes(), bound);
    EXPECT_FALSE(good->closed);
    expect_alive(*good);
}

TEST_F(ServerTest, room_that_a_large_frame_took_is_given_back_when_it_is_needed) {
    start({.max_peer_bytes = 2u << 20});
    std::vector<std::unique_ptr<TestBackbone>> backbones;
    for (uint64_t i = 0; i < 10; ++i) {
        backbones.push_back(connect());
        backbones.back()->link->send(wire::encode(header(i), rows(25000)));
        run(100ms);
        EXPECT_TRUE(backbones.back()->answers[i].complete) << i;
    }
    EXPECT_LE(server->held_bytes(), 2u << 20);
}

TEST_F(ServerTest, a_program_that_hoards_values_is_refused_for_its_memory) {
    start({.max_result_bytes = 1'000'000, .max_peer_bytes = 1'000'000});
    auto backbone = connect();
    moe::Program hoarder = test::simple_program();
    hoarder.steps.resize(1);
    for (uint8_t i = 1; i <= 30; ++i)
        hoarder.steps.push_back({.op = moe::Op::silu, .a = i});
    for (uint8_t i = 1; i <= 30; ++i)
        hoarder.steps.push_back({.op = moe::Op::add, .a = static_cast<uint8_t>(30 + i), .b = i});
    backbone->send_program(header(0), 2, hoarder, 2, 4);
    wire::Compute compute = rows(4096);
    compute.program = 2;
    std::fill(compute.expert.begin(), compute.expert.end(), 0);
    const auto refused = refusal(*backbone, header(1), compute);
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->code, RefuseCode::unsupported);
    expect_alive(*backbone);
}

/// All at once it would take 320 kB, in parts 100.
TEST_F(ServerTest, a_request_too_large_to_be_computed_at_once_is_computed_in_parts) {
    start({.max_result_bytes = 200'000, .max_peer_bytes = 200'000});
    auto backbone = connect();
    backbone->link->send(wire::encode(header(1), rows(8000)));
    run(1s);
    EXPECT_FALSE(backbone->answers[1].refused.has_value());
    ASSERT_TRUE(backbone->answers[1].complete);
    EXPECT_EQ(backbone->answers[1].rows, expected_rows(8000, 2));
}

TEST_F(ServerTest, programs_of_one_session_are_bounded_in_memory) {
    start();
    auto backbone = connect();
    for (uint32_t number = 2; number < 20000; ++number)
        backbone->send_program(header(number), number, test::simple_program(), 2, 4);
    run(1s);
    EXPECT_FALSE(backbone->answers.contains(1000)) << "a thousand are possible";
    ASSERT_TRUE(backbone->answers[19999].refused.has_value());
    EXPECT_EQ(backbone->answers[19999].refused->code, RefuseCode::busy);
    EXPECT_LE(server->held_bytes(), 3u << 20);
    // A number that is given again takes no more.
    backbone->send_program(header(20001), 1, test::simple_program(), 2, 4);
    run(10ms);
    EXPECT_FALSE(backbone->answers.contains(20001));
    expect_alive(*backbone, 30000);
}

TEST_F(ServerTest, a_newcomer_takes_the_place_of_one_that_says_nothing) {
    start({.max_connections = 3});
    auto first = connect(), silent = connect(false), other = connect();
    auto early = connect(false);
    run(100ms);
    EXPECT_TRUE(early->goaway.has_value()) << "no place, and nobody has been silent for long";
    run(1s);
    auto late = connect();
    run(100ms);
    EXPECT_TRUE(silent->closed);
    expect_alive(*late);
    expect_alive(*first);
}

TEST_F(ServerTest, pong_does_not_wait_for_results_that_wait) {
    start();
    auto backbone = connect(true, 1000);
    backbone->give_credit = false;
    for (uint64_t request = 1; request <= 5; ++request)
        backbone->link->send(wire::encode(header(request), rows(5000)));
    run(1s);
    EXPECT_FALSE(backbone->answers[1].complete);
    backbone->link->send(wire::encode(wire::Ping{7}));
    run(1ms);
    ASSERT_EQ(backbone->pongs.size(), 1u);
    EXPECT_EQ(backbone->pongs[0].nonce, 7u);
}

TEST(LogLimit, a_flood_is_counted_instead_of_told) {
    LogLimit limit;
    Instant now{0};
    int n_lines = 0;
    for (int i = 0; i < 1000; ++i)
        n_lines += limit.allow(now) ? 1 : 0;
    EXPECT_EQ(n_lines, LogLimit::max_lines);
    EXPECT_EQ(limit.left_out(now), 0u) << "the stretch is not over";
    now += LogLimit::stretch;
    EXPECT_EQ(limit.left_out(now), 1000u - LogLimit::max_lines);
    EXPECT_EQ(limit.left_out(now), 0u) << "told once";
    EXPECT_TRUE(limit.allow(now));
}

}  // namespace
}  // namespace linkcpp::worker
