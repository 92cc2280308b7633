#pragma once
// The real worker, linkcpp-expert-worker as a process on loopback with slices of the model in the repository, and a backbone
// that talks to it.

#include "moe/files.h"
#include "moe/slice_writer.h"
#include "net/tcp.h"
#include "support/process.h"
#include "worker/rig.h"

namespace linkcpp::worker {

using namespace std::chrono_literals;
using test::Process;
using test::TestBackbone;

inline wire::SliceId id_of(const moe::SliceInfo& info) {
    wire::SliceId id;
    std::copy_n(info.digest.bytes.begin(), id.size(), id.begin());
    return id;
}

/// The routed FFN of the model: silu(gate x) * (up x), then down.
inline moe::Program gated_program() {
    moe::Program program;
    program.weighted = true;
    program.steps = {{.op = moe::Op::matmul, .matrix = moe::Matrix::gate, .a = 0},
                     {.op = moe::Op::matmul, .matrix = moe::Matrix::up, .a = 0},
                     {.op = moe::Op::swiglu, .a = 1, .b = 2},
                     {.op = moe::Op::matmul, .matrix = moe::Matrix::down, .a = 3}};
    return program;
}

/// A backbone on a network of its own thread.
struct Backbone {
    explicit Backbone(uint16_t port)
        : Backbone(port, [](const TestBackbone& reached) { return reached.welcome.has_value(); }) {}
    /// Waits until `ready`.
    Backbone(uint16_t port, const std::function<bool(const TestBackbone&)>& ready) {
        network.loop().run([&] {
            network.connect({"127.0.0.1", port}, 10s, [this](Result<std::unique_ptr<net::Link>> link) {
                if (!link.ok()) return;
                end.attach(std::move(*link));
                end.say_hello();
            });
        });
        EXPECT_TRUE(wait([&] { return ready(end); }));
    }
    ~Backbone() {
        network.stop();
        end.link.reset();
    }
    /// Looks at `end` on the loop until `done`.
    bool wait(const std::function<bool()>& done, Duration limit = 60s) {
        const auto stop = std::chrono::steady_clock::now() + limit;
        while (true) {
            bool now = false;
            network.loop().run([&] { now = done(); });
            if (now) return true;
            if (std::chrono::steady_clock::now() > stop) return false;
            std::this_thread::sleep_for(2ms);
        }
    }
    void send(Bytes frame) {
        network.loop().run([&] {
            if (end.link) end.link->send(std::move(frame));
        });
    }
    TestBackbone::Answer answer(uint64_t request) {
        EXPECT_TRUE(wait([&] { return end.answers[request].complete || end.answers[request].refused; }));
        TestBackbone::Answer answer;
        network.loop().run([&] { answer = end.answers[request]; });
        return answer;
    }

    TestBackbone end;
    net::TcpNetwork network;
};

class WorkerProcess : public testing::Test {
  protected:
    std::string cut(const std::string& name, moe::SliceRequest request) {
        const std::string path = folder / name;
        auto model = moe::ModelFile::open(test::capitals_model());
        EXPECT_TRUE(model.ok());
        auto plan = moe::plan_slice(*model, request);
        EXPECT_TRUE(plan.ok());
        EXPECT_TRUE(moe::write_slice(*model, *plan, path).ok());
        return path;
    }
    static std::vector<std::string> command(std::vector<std::string> more) {
        std::vector<std::string> all = {test::program("linkcpp-expert-worker"), "--serve", "127.0.0.1:0"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    static uint16_t port_of(Process& process) {
        const auto where = process.wait_for_line("serving on 127.0.0.1:");
        EXPECT_TRUE(where.has_value());
        return where ? static_cast<uint16_t>(std::stoi(*where)) : 0;
    }
    static wire::FrameHeader header(const moe::SliceInfo& info, uint64_t request, uint32_t layer) {
        wire::FrameHeader header;
        header.request = request;
        header.slice = id_of(info);
        header.layer = layer;
        return header;
    }
    /// `n_tokens` rows of pseudo-random numbers, four experts each, counted from the slice's first.
    static wire::Compute prompt(uint32_t n_tokens, uint32_t n_expert, uint32_t seed) {
        wire::Compute compute{.program = 1, .n_x = n_tokens, .n_in = 256, .n_rows_out = 4 * n_tokens};
        const auto next = [&seed] { return seed = seed * 1664525 + 1013904223; };
        for (uint32_t t = 0; t < n_tokens; ++t) {
            for (uint32_t k = 0; k < 4; ++k) {
                compute.x_row.push_back(t);
                compute.expert.push_back((next() >> 16) % n_expert);
            }
        }
        for (uint32_t i = 0; i < n_tokens * 256; ++i) {
            compute.x.push_back(static_cast<float>(static_cast<int32_t>(next())) / 1e9f);
        }
        return compute;
    }

    test::TempFolder folder;
};

}  // namespace linkcpp::worker
