// The simulated network keeps the promises of net/loop.h, and its faults do what they say.
#include "support/sim_network.h"

#include <gtest/gtest.h>

namespace linkcpp::test {
namespace {

using namespace std::chrono_literals;

const net::Address address{"worker", 1};

class Sim : public testing::Test {
  protected:
    void SetUp() override {
        auto result = network.listen(address, [this](std::unique_ptr<net::Link> link) {
            server = std::move(link);
            server->on_bytes = [this](ByteSpan bytes) {
                at_server.insert(at_server.end(), bytes.begin(), bytes.end());
            };
            server->on_closed = [this](Status status) { server_closed = std::move(status); };
        });
        ASSERT_TRUE(result.ok());
        listener = std::move(*result);
    }
    Status connect(Duration timeout = 1s) {
        Status status;
        bool done = false;
        network.connect(address, timeout, [&](Result<std::unique_ptr<net::Link>> link) {
            done = true;
            status = link.status();
            if (!link.ok()) return;
            client = std::move(*link);
            client->on_bytes = [this](ByteSpan bytes) {
                at_client.insert(at_client.end(), bytes.begin(), bytes.end());
            };
            client->on_closed = [this](Status reason) { client_closed = std::move(reason); };
        });
        EXPECT_TRUE(network.sim().run_until([&] { return done; }, 1h));
        return status;
    }
    Instant now() { return network.sim().now(); }

    SimNetwork network;
    std::unique_ptr<net::Listener> listener;
    std::unique_ptr<net::Link> client, server;
    Bytes at_server, at_client;
    Status client_closed, server_closed;
};

TEST_F(Sim, latency_and_bandwidth_take_their_time) {
    network.path(address) = {.latency = 50ms, .bytes_per_second = 1e6};
    ASSERT_TRUE(connect().ok());
    EXPECT_EQ(now(), 100ms);
    client->send(Bytes(500000, 7));
    EXPECT_EQ(client->unsent(), 500000u);
    ASSERT_TRUE(network.sim().run_until([&] { return at_server.size() == 500000; }, 10s));
    EXPECT_NEAR(milliseconds(now()), 100 + 50 + 500, 0.1);
    EXPECT_EQ(client->unsent(), 0u);
    server->send({1, 2, 3});
    network.sim().run_for(49ms);
    EXPECT_TRUE(at_client.empty());
    network.sim().run_for(2ms);
    EXPECT_EQ(at_client, (Bytes{1, 2, 3}));
}

TEST_F(Sim, flush_arrives_before_the_end_and_a_plain_close_drops) {
    network.path(address) = {.latency = 10ms, .bytes_per_second = 1e6};
    ASSERT_TRUE(connect().ok());
    client->send(Bytes(300000));
    client->close(true);
    client.reset();
    network.sim().run_for(2s);
    EXPECT_EQ(at_server.size(), 300000u);
    EXPECT_EQ(server_closed.code(), Code::unavailable);

    at_server.clear();
    ASSERT_TRUE(connect().ok());
    client->send(Bytes(300000));
    client->close();
    network.sim().run_for(2s);
    EXPECT_LT(at_server.size(), 300000u);
    EXPECT_TRUE(client_closed.ok()) << "a callback after close()";
}

TEST_F(Sim, a_reader_that_stops_holds_the_sender_back) {
    ASSERT_TRUE(connect().ok());
    server->set_reading(false);
    int n_drained = 0;
    client->on_drained = [&] { ++n_drained; };
    client->send(Bytes(1 << 20));
    network.sim().run_for(1s);
    EXPECT_EQ(n_drained, 0);
    EXPECT_TRUE(at_server.empty());
    EXPECT_GE(client->unsent(), (1u << 20) - 400000u);
    server->set_reading(true);
    network.sim().run_for(1s);
    EXPECT_EQ(at_server.size(), 1u << 20);
    EXPECT_EQ(n_drained, 1);
}

TEST_F(Sim, refused_partitioned_and_unknown) {
    network.path(address).refuse = true;
    EXPECT_EQ(connect().code(), Code::unavailable);
    network.path(address) = {.partition = true};
    EXPECT_EQ(connect(700ms).code(), Code::timeout);
    EXPECT_EQ(now(), 700ms);
    network.path(address) = {};
    listener.reset();
    EXPECT_EQ(connect().code(), Code::unavailable);
}

TEST_F(Sim, a_stall_holds_one_direction_and_ends) {
    ASSERT_TRUE(connect().ok());
    network.path(address).stall_to_listener = true;
    client->send({1});
    server->send({2});
    network.sim().run_for(10s);
    EXPECT_TRUE(at_server.empty());
    EXPECT_EQ(at_client, Bytes{2});
    network.path(address) = {};
    network.release(address);
    network.sim().run_for(1ms);
    EXPECT_EQ(at_server, Bytes{1});
}

TEST_F(Sim, cuts_tell_both_ends) {
    ASSERT_TRUE(connect().ok());
    EXPECT_EQ(network.connections(address), 1u);
    network.cut(address);
    EXPECT_EQ(client_closed.code(), Code::io);
    EXPECT_EQ(server_closed.code(), Code::io);
    EXPECT_EQ(network.connections(address), 0u);

    ASSERT_TRUE(connect().ok());
    client_closed = {};
    network.cut_after(address, true, 1000);
    client->send(Bytes(600));
    client->send(Bytes(600));
    network.sim().run_for(1s);
    EXPECT_EQ(at_server.size(), 1000u);
    EXPECT_EQ(client_closed.code(), Code::io);
}

TEST_F(Sim, flips_the_bit_that_was_asked_for) {
    ASSERT_TRUE(connect().ok());
    network.flip_bit_after(address, true, 2, 7);
    client->send(Bytes(4));
    network.sim().run_for(1s);
    EXPECT_EQ(at_server, (Bytes{0, 0, 128, 0}));
}

TEST_F(Sim, links_may_be_destroyed_in_their_callbacks_and_outlive_the_network) {
    auto other = std::make_unique<SimNetwork>();
    std::unique_ptr<net::Link> near, far;
    auto listening = other->listen({"x", 0}, [&](std::unique_ptr<net::Link> link) {
        far = std::move(link);
        far->on_bytes = [&](ByteSpan) { far.reset(); };
    });
    other->connect((*listening)->address(), 1s,
                   [&](Result<std::unique_ptr<net::Link>> link) { near = std::move(*link); });
    other->sim().run_for(1s);
    near->send(Bytes(1000000));
    other->sim().run_for(1s);
    EXPECT_FALSE(far);
    near->send({1});
    listening->reset();
    other.reset();
    near->send({1});
    near->close(true);
}

TEST_F(Sim, timers_keep_order_and_posts_come_from_any_thread) {
    std::string order;
    SimLoop& loop = network.sim();
    loop.after(2ms, [&] { order += 'c'; });
    loop.after(1ms, [&] { order += 'a'; });
    loop.after(1ms, [&] { order += 'b'; });
    loop.cancel(loop.after(1ms, [&] { order += 'x'; }));
    loop.post([&] { order += '0'; });
    loop.run_for(5ms);
    EXPECT_EQ(order, "0abc");
    EXPECT_EQ(now(), 5ms);
}

}  // namespace
}  // namespace linkcpp::test
