// The server's decisions in virtual time: what it answers, refuses, bounds and forgets.
#include "worker/server_fixture.h"

namespace linkcpp::worker {
namespace {

TEST_F(ServerTest, welcomes_with_what_it_holds) {
    start();
    auto backbone = connect();
    EXPECT_EQ(backbone->welcome->slices, std::vector{slice.offer});
    EXPECT_EQ(backbone->welcome->numeric_class, "class");
    EXPECT_GE(backbone->welcome->credit, backbone->welcome->max_payload);
    EXPECT_EQ(server->n_connections(), 1u);
}

TEST_F(ServerTest, computes_rows_and_sums) {
    start();
    auto backbone = connect();
    backbone->link->send(wire::encode(header(1), rows(3)));
    backbone->link->send(wire::encode(header(2, 3), rows(2)));
    wire::Compute sums = rows(3);
    sums.output = wire::Output::sums;
    sums.group = {0, 0, 1};
    sums.weight = {0.5f, 2.0f, 4.0f};
    sums.n_rows_out = 2;
    backbone->link->send(wire::encode(header(3), sums));
    run(200ms);
    EXPECT_EQ(backbone->answers[1].rows, expected_rows(3, 2));
    EXPECT_EQ(backbone->answers[2].rows, expected_rows(2, 3));
    EXPECT_EQ(backbone->answers[3].rows,
              (std::vector<float>{0.5f * 1.5f + 2 * 2.5f, 0.5f * 200 + 2 * 201, 4 * 3.5f, 4 * 202}));
    for (uint64_t request : {1, 2, 3})
        EXPECT_TRUE(backbone->answers[request].complete);
    EXPECT_EQ(server->pairs_waiting(), 0u);
}

TEST_F(ServerTest, refuses_each_wrong_request_and_goes_on) {
    start();
    auto backbone = connect();
    wire::FrameHeader wrong_slice = header(1);
    wrong_slice.slice[0] ^= 1;
    EXPECT_EQ(refusal(*backbone, wrong_slice, rows())->code, RefuseCode::unknown_slice);
    EXPECT_EQ(refusal(*backbone, header(2, 7), rows())->code, RefuseCode::unknown_slice);
    EXPECT_EQ(refusal(*backbone, header(3, 4), rows())->code, RefuseCode::unknown_slice);
    wire::Compute compute = rows();
    compute.program = 9;
    EXPECT_EQ(refusal(*backbone, header(4), compute)->code, RefuseCode::unknown_program);
    compute = rows();
    compute.expert[1] = 4;
    EXPECT_EQ(refusal(*backbone, header(5), compute)->code, RefuseCode::malformed);
    compute = rows();
    compute.n_in = 2;
    compute.x.resize(4);
    EXPECT_EQ(refusal(*backbone, header(6), compute)->code, RefuseCode::malformed);
    compute = rows();
    compute.x_row[0] = 77;
    EXPECT_EQ(refusal(*backbone, header(7), compute)->code, RefuseCode::malformed);
    compute = rows();
    compute.n_x = 1;
    compute.x.resize(3);
    compute.x_row.assign(100000, 0);
    compute.expert.assign(100000, 0);
    compute.n_rows_out = 100000;
    EXPECT_EQ(refusal(*backbone, header(8), compute)->code, RefuseCode::unsupported);
    EXPECT_EQ(engine.n_calls, 0);
    expect_alive(*backbone);
}

TEST_F(ServerTest, refuses_programs_that_do_not_fit) {
    start();
    auto backbone = connect();
    const auto refused = [&](uint64_t request, wire::FrameHeader head, const wire::ProgramFrame& frame) {
        head.request = request;
        backbone->link->send(wire::encode(head, frame));
        run(10ms);
        const auto& refusal = backbone->answers[request].refused;
        return refusal ? refusal->code : RefuseCode{};
    };
    const Bytes good = encode_program(test::simple_program());
    EXPECT_EQ(refused(1, header(0), {2, 2, 4, {1, 2, 3}}), RefuseCode::malformed);
    Bytes newer = good;
    newer[4] = 99;
    EXPECT_EQ(refused(2, header(0), {2, 2, 4, newer}), RefuseCode::unsupported);
    moe::Program gated = test::simple_program();
    gated.steps[0].matrix = moe::Matrix::gate;
    EXPECT_EQ(refused(3, header(0), {2, 2, 4, encode_program(gated)}), RefuseCode::unsupported);
    moe::Program twisted = test::simple_program();
    twisted.steps[2].matrix = moe::Matrix::up;
    EXPECT_EQ(refused(4, header(0), {2, 2, 4, encode_program(twisted)}), RefuseCode::malformed);
    EXPECT_EQ(refused(5, header(0), {2, 10, 20, good}), RefuseCode::unknown_slice);
    EXPECT_EQ(refused(6, header(0), {2, 2, 4, {}}), RefuseCode::malformed);
    wire::FrameHeader other = header(0);
    other.slice = {9};
    EXPECT_EQ(refused(7, other, {2, 2, 4, good}), RefuseCode::unknown_slice);
    expect_alive(*backbone);
    // A number whose new program was refused means nothing any more.
    EXPECT_EQ(refused(8, header(0), {1, 2, 4, {1, 2, 3}}), RefuseCode::malformed);
    EXPECT_EQ(refusal(*backbone, header(9), rows())->code, RefuseCode::unknown_program);
}

TEST_F(ServerTest, programs_are_those_of_a_connection_and_of_their_layers) {
    start();
    auto one = connect();
    auto other = connect(false);
    other->say_hello();
    other->send_program(header(0), 1, test::simple_program(), 3, 4);
    run(10ms);
    EXPECT_EQ(refusal(*other, header(1, 2), rows())->code, RefuseCode::unknown_program);
    EXPECT_FALSE(refusal(*other, header(2, 3), rows()).has_value());
    expect_alive(*one);
}

TEST_F(ServerTest, time_that_ran_out_before_the_start_is_said) {
    start();
    computer.time_per_job = 100ms;
    auto backbone = connect();
    for (uint64_t request : {1, 2, 3})
        backbone->link->send(wire::encode(header(request), rows()));
    wire::FrameHeader hurried = header(4);
    hurried.time_allowed_ms = 50;
    backbone->link->send(wire::encode(hurried, rows()));
    wire::FrameHeader patient = header(5);
    patient.time_allowed_ms = 5000;
    backbone->link->send(wire::encode(patient, rows()));
    run(2s);
    EXPECT_EQ(backbone->answers[4].refused->code, RefuseCode::no_time_left);
    EXPECT_TRUE(backbone->answers[5].complete);
}

TEST_F(ServerTest, the_queue_is_bounded_in_requests_and_bytes) {
    start({.max_requests = 5});
    computer.time_per_job = 1s;
    auto backbone = connect();
    for (uint64_t request = 1; request <= 8; ++request)
        backbone->link->send(wire::encode(header(request), rows()));
    run(10ms);
    for (uint64_t request = 1; request <= 8; ++request) {
        const auto& refused = backbone->answers[request].refused;
        EXPECT_EQ(refused.has_value(), request > 5);
        if (refused) {
            EXPECT_EQ(refused->code, RefuseCode::busy);
        }
    }
    run(10s);
    for (uint64_t request = 1; request <= 5; ++request)
        EXPECT_TRUE(backbone->answers[request].complete);
    EXPECT_EQ(computer.n_most_under_way, 2);
    computer.time_per_job = 1ms;
    expect_alive(*backbone);
}

TEST_F(ServerTest, one_connection_cannot_take_the_whole_queue) {
    start({.max_queued_payloads = 4});
    computer.time_per_job = 10s;
    auto greedy = connect(), modest = connect();
    // 32768 pairs, nearly half of the largest payload each.
    wire::Compute large = rows(32768);
    for (uint64_t request = 1; request <= 8; ++request)
        greedy->link->send(wire::encode(header(request), large));
    run(100ms);
    int n_refused = 0;
    for (auto& [request, answer] : greedy->answers)
        n_refused += answer.refused.has_value();
    EXPECT_GT(n_refused, 0);
    EXPECT_LT(n_refused, 8);
    modest->link->send(wire::encode(header(1), rows()));
    run(100ms);
    EXPECT_FALSE(modest->answers[1].refused.has_value());
    run(10min);
    EXPECT_TRUE(modest->answers[1].complete);
}

TEST_F(ServerTest, connections_take_turns) {
    start();
    auto first = connect(), second = connect();
    for (uint64_t request = 1; request <= 20; ++request)
        first->link->send(wire::encode(header(request), rows()));
    second->link->send(wire::encode(header(1), rows()));
    run(45ms);
    EXPECT_TRUE(second->answers[1].complete) << "it waited for the whole queue of the other";
    EXPECT_FALSE(first->answers[20].complete);
    run(1s);
    EXPECT_TRUE(first->answers[20].complete);
}

TEST_F(ServerTest, long_results_stream_in_tiles_and_short_ones_pass_between) {
    network.path(address).bytes_per_second = 1e6;
    start();
    auto backbone = connect();
    backbone->link->send(wire::encode(header(1), rows(20000)));
    backbone->link->send(wire::encode(header(2), rows(2)));
    run(10s);
    EXPECT_EQ(backbone->answers[1].rows, expected_rows(20000, 2));
    EXPECT_EQ(backbone->answers[1].n_tiles, (20000 + 63) / 64);
    EXPECT_TRUE(backbone->answers[2].complete);
    EXPECT_EQ(backbone->tile_order.back(), 1u);
}

TEST_F(ServerTest, results_wait_for_credit) {
    start();
    auto backbone = connect(true, 2000);
    backbone->give_credit = false;
    backbone->link->send(wire::encode(header(1), rows(640)));
    run(1s);
    EXPECT_EQ(backbone->answers[1].n_tiles, 3);  // 528 bytes each
    backbone->link->send(wire::encode(wire::Credit{528}));
    run(10ms);
    EXPECT_EQ(backbone->answers[1].n_tiles, 4);
    backbone->link->send(wire::encode(wire::Credit{1 << 20}));
    run(10ms);
    EXPECT_TRUE(backbone->answers[1].complete);
}

TEST_F(ServerTest, results_that_nobody_takes_stop_the_computing_and_in_the_end_the_connection) {
    start({.max_result_bytes = 10000});
    auto stuck = connect(true, 1), other = connect();
    stuck->give_credit = false;
    for (uint64_t request = 1; request <= 10; ++request)
        stuck->link->send(wire::encode(header(request), rows(640)));
    run(1s);
    EXPECT_LT(engine.n_calls, 10);
    expect_alive(*other);
    // Also a peer that keeps pinging.
    for (int i = 0; i < 80 && !stuck->closed; ++i) {
        stuck->link->send(wire::encode(wire::Ping{1}));
        run(1s);
    }
    EXPECT_TRUE(stuck->goaway.has_value() || stuck->closed);
    EXPECT_EQ(server->pairs_waiting(), 0u);
    expect_alive(*other, 1000);
}

TEST_F(ServerTest, pong_comes_at_once_and_shows_progress) {
    start();
    computer.time_per_job = 10s;
    auto backbone = connect();
    backbone->link->send(wire::encode(header(1), rows(100)));
    backbone->link->send(wire::encode(wire::Ping{42}));
    run(1ms);
    ASSERT_EQ(backbone->pongs.size(), 1u);
    EXPECT_EQ(backbone->pongs[0].nonce, 42u);
    EXPECT_EQ(backbone->pongs[0].rows_queued, 100u);
    EXPECT_EQ(backbone->pongs[0].rows_done, 0u);
    run(20s);
    backbone->link->send(wire::encode(wire::Ping{43}));
    run(1ms);
    EXPECT_EQ(backbone->pongs[1].rows_queued, 0u);
    EXPECT_EQ(backbone->pongs[1].rows_done, 100u);
}

TEST_F(ServerTest, a_flood_of_pings_that_nobody_reads_is_not_answered_for_ever) {
    start();
    auto backbone = connect();
    backbone->link->set_reading(false);
    Bytes flood;
    const Bytes ping = wire::encode(wire::Ping{1});
    for (int i = 0; i < 10000; ++i)
        flood.insert(flood.end(), ping.begin(), ping.end());
    for (int i = 0; i < 10; ++i)
        backbone->link->send(flood);
    run(10s);
    EXPECT_GT(backbone->link->unsent(), 3u << 20) << "the worker reads on although its answers pile up";
    backbone->link->set_reading(true);
    run(10s);
    EXPECT_EQ(backbone->pongs.size(), 100000u);
    expect_alive(*backbone);
}

TEST_F(ServerTest, what_a_lost_connection_asked_for_is_dropped) {
    start();
    computer.time_per_job = 100ms;
    auto lost = connect(), other = connect();
    for (uint64_t request = 1; request <= 20; ++request)
        lost->link->send(wire::encode(header(request), rows()));
    run(50ms);
    lost.reset();
    run(10ms);
    EXPECT_EQ(server->n_connections(), 1u);
    EXPECT_EQ(server->pairs_waiting(), 4u) << "only what is being computed";
    run(1s);
    EXPECT_EQ(engine.n_calls, 2);
    EXPECT_EQ(server->pairs_waiting(), 0u);
    computer.time_per_job = 1ms;
    expect_alive(*other);
}

TEST_F(ServerTest, failures_of_the_engine_are_refusals) {
    start();
    auto backbone = connect();
    const std::pair<Code, RefuseCode> cases[] = {{Code::exhausted, RefuseCode::busy},
                                                 {Code::unsupported, RefuseCode::unsupported},
                                                 {Code::invalid_argument, RefuseCode::malformed},
                                                 {Code::io, RefuseCode::failed}};
    uint64_t request = 1;
    for (const auto& [code, expected] : cases) {
        engine.next_status = {code, "because"};
        const auto refused = refusal(*backbone, header(request++), rows());
        ASSERT_TRUE(refused.has_value());
        EXPECT_EQ(refused->code, expected);
        EXPECT_EQ(refused->message, "because");
    }
    expect_alive(*backbone);
}

TEST_F(ServerTest, a_silent_stranger_is_dropped_after_the_handshake_limit) {
    start();
    auto silent = connect(false);
    run(4900ms);
    EXPECT_FALSE(silent->closed);
    run(200ms);
    EXPECT_TRUE(silent->closed);
    EXPECT_EQ(server->n_connections(), 0u);
}

TEST_F(ServerTest, hostile_bytes_end_their_own_connection_only) {
    start();
    auto good = connect();
    const std::vector<Bytes> hostile = {Bytes(1000, 'x'), Bytes(1000, 0), wire::encode(wire::Ping{1}),
                                        wire::encode(header(1), rows()), wire::encode(wire::Welcome{})};
    for (const Bytes& bytes : hostile) {
        auto bad = connect(false);
        bad->link->send(bytes);
        run(100ms);
        EXPECT_TRUE(bad->closed);
    }
    // After the handshake as well.
    auto bad = connect();
    Bytes flipped = wire::encode(header(1), rows());
    flipped.back() ^= 1;
    bad->link->send(flipped);
    run(100ms);
    EXPECT_TRUE(bad->closed);
    ASSERT_TRUE(bad->goaway.has_value());
    EXPECT_EQ(bad->goaway->reason, RefuseCode::malformed);
    EXPECT_EQ(server->n_connections(), 1u);
    expect_alive(*good);
}

TEST_F(ServerTest, versions_that_do_not_meet_are_told) {
    start();
    auto newer = connect(false);
    newer->link->send(wire::encode(wire::Hello{.version_min = 7, .version_max = 9, .max_payload = 1 << 20}));
    run(100ms);
    ASSERT_TRUE(newer->goaway.has_value());
    EXPECT_EQ(newer->goaway->reason, RefuseCode::version);
    EXPECT_NE(newer->goaway->message.find("7 to 9"), std::string::npos) << newer->goaway->message;
    EXPECT_TRUE(newer->closed);
}

TEST_F(ServerTest, connections_are_bounded) {
    start({.max_connections = 3});
    std::vector<std::unique_ptr<TestBackbone>> backbones;
    for (int i = 0; i < 3; ++i)
        backbones.push_back(connect());
    auto late = connect(false);
    run(100ms);
    ASSERT_TRUE(late->goaway.has_value());
    EXPECT_EQ(late->goaway->reason, RefuseCode::busy);
    backbones.pop_back();
    run(10ms);
    expect_alive(*connect());
}

TEST_F(ServerTest, a_peer_that_vanished_is_noticed_by_pings) {
    start();
    auto backbone = connect(), lost = connect();
    run(50s);
    EXPECT_GE(backbone->n_pings, 1);
    EXPECT_EQ(server->n_connections(), 2u);
    // Of a vanished peer no news comes, not even that it closed.
    network.path(address).partition = true;
    run(70s);
    EXPECT_EQ(server->n_connections(), 0u);
}

TEST_F(ServerTest, draining_finishes_what_is_in_flight_and_refuses_the_rest) {
    start();
    computer.time_per_job = 200ms;
    auto busy = connect(), idle = connect(), stranger = connect(false);
    network.path(address).latency = 20ms;
    run(200ms);
    for (uint64_t request : {1, 2, 3})
        busy->link->send(wire::encode(header(request), rows()));
    run(50ms);
    bool done = false;
    server->drain([&] { done = true; });
    // This one crosses the GOAWAY on its way.
    busy->link->send(wire::encode(header(4), rows()));
    run(100ms);
    EXPECT_FALSE(done);
    EXPECT_TRUE(stranger->closed);
    EXPECT_EQ(busy->goaway->reason, RefuseCode::draining);
    EXPECT_EQ(busy->answers[4].refused->code, RefuseCode::draining);
    run(300ms);
    EXPECT_TRUE(idle->closed);
    EXPECT_FALSE(done);
    run(2s);
    EXPECT_TRUE(done);
    for (uint64_t request : {1, 2, 3})
        EXPECT_TRUE(busy->answers[request].complete) << request;
    EXPECT_TRUE(busy->closed);
    bool refused = false;
    network.connect(address, 1s, [&](Result<std::unique_ptr<net::Link>> link) { refused = !link.ok(); });
    run(1s);
    EXPECT_TRUE(refused);
}

TEST_F(ServerTest, draining_without_connections_is_over_at_once) {
    start();
    bool done = false;
    server->drain([&] { done = true; });
    run(1ms);
    EXPECT_TRUE(done);
}

TEST_F(ServerTest, may_be_destroyed_with_everything_under_way) {
    start();
    auto backbone = connect();
    for (uint64_t request = 1; request <= 10; ++request)
        backbone->link->send(wire::encode(header(request), rows(100)));
    run(5ms);
    server.reset();
    run(10s);
    EXPECT_TRUE(backbone->closed);
}

TEST_F(ServerTest, a_large_request_is_computed_in_parts_of_whole_experts) {
    start();
    auto backbone = connect();
    backbone->link->send(wire::encode(header(1), rows(2000)));  // 500 pairs for each of 4 experts
    run(1s);
    EXPECT_EQ(backbone->answers[1].rows, expected_rows(2000, 2));
    EXPECT_EQ(engine.n_calls, 2);
}

}  // namespace
}  // namespace linkcpp::worker
