#pragma once
// A server in virtual time, with an engine of four experts that computes something simple, and backbones that connect to it.

#include "support/sim_network.h"
#include "worker/rig.h"
#include "worker/server.h"

#include <gtest/gtest.h>

namespace linkcpp::worker {

using namespace std::chrono_literals;
using test::TestBackbone;
using wire::RefuseCode;

inline const net::Address address{"worker", 1};

class ServerTest : public testing::Test {
  protected:
    ServerTest() {
        slice.offer = {.slice = {1, 2, 3}, .layer_begin = 2, .layer_end = 4, .expert_begin = 8, .expert_end = 12};
        slice.engine = &engine;
        slice.n_expert_used = 2;
        slices = {slice};
    }
    void start(ServerSettings settings = {}) {
        settings.build = "test worker";
        settings.numeric_class = "class";
        server = std::make_unique<Server>(network, computer, slices, settings);
        ASSERT_TRUE(server->listen(address).ok());
    }
    /// A connection; `greet`: with the handshake done and program 1 known for both layers.
    std::unique_ptr<TestBackbone> connect(bool greet = true, uint64_t credit = 1 << 30) {
        auto backbone = std::make_unique<TestBackbone>();
        network.connect(address, 1s,
                        [&](Result<std::unique_ptr<net::Link>> link) { backbone->attach(std::move(*link)); });
        run(10ms);
        if (!greet) return backbone;
        backbone->say_hello(credit);
        backbone->send_program(header(0), 1, test::simple_program(), 2, 4);
        run(10ms);
        EXPECT_TRUE(backbone->welcome.has_value());
        return backbone;
    }
    void run(Duration duration) { network.sim().run_for(duration); }

    wire::FrameHeader header(uint64_t request, uint32_t layer = 2) {
        wire::FrameHeader header;
        header.request = request;
        header.slice = slice.offer.slice;
        header.layer = layer;
        return header;
    }
    static wire::Compute rows(uint32_t n_pairs = 2) {
        wire::Compute compute{.program = 1, .n_x = n_pairs, .n_in = 3, .n_rows_out = n_pairs};
        for (uint32_t p = 0; p < n_pairs; ++p) {
            compute.x_row.push_back(p);
            compute.expert.push_back(p % 4);
            compute.x.insert(compute.x.end(), {static_cast<float>(p), 1.0f, 0.5f});
        }
        return compute;
    }
    static std::vector<float> expected_rows(uint32_t n_pairs, float layer) {
        std::vector<float> y;
        for (uint32_t p = 0; p < n_pairs; ++p) {
            y.insert(y.end(), {static_cast<float>(p) + 1.5f, static_cast<float>(p % 4) + 100.0f * layer});
        }
        return y;
    }
    /// Sends `compute` and returns why it was refused, after checking that the connection lives and credit came back.
    std::optional<wire::Refuse> refusal(TestBackbone& backbone, wire::FrameHeader header,
                                        const wire::Compute& compute) {
        const uint64_t credit_before = backbone.credit_back;
        const Bytes frame = wire::encode(header, compute);
        backbone.link->send(frame);
        run(100ms);
        EXPECT_FALSE(backbone.closed);
        EXPECT_TRUE(backbone.error.ok()) << backbone.error.message();
        EXPECT_EQ(backbone.credit_back - credit_before, frame.size() - wire::header_bytes);
        return backbone.answers[header.request].refused;
    }
    void expect_alive(TestBackbone& backbone, uint64_t request = 999) {
        backbone.link->send(wire::encode(header(request), rows()));
        run(100ms);
        EXPECT_TRUE(backbone.answers[request].complete);
        EXPECT_EQ(backbone.answers[request].rows, expected_rows(2, 2));
    }

    test::SimNetwork network;
    test::TestEngine engine;
    test::TestComputer computer{network.loop()};
    ServedSlice slice;
    std::vector<ServedSlice> slices;
    std::unique_ptr<Server> server;
};

}  // namespace linkcpp::worker
