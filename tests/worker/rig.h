#pragma once
// A backbone for tests that sends exactly what it is told to, and a worker's inside without ggml: an engine that computes
// something simple and a computer that needs virtual time.

#include "net/loop.h"
#include "wire/session.h"
#include "worker/job_runner.h"
#include "worker/request_check.h"

#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <optional>

namespace linkcpp::test {

/// One end of a connection; keeps everything that arrives.
class TestBackbone : public wire::SessionHandler {
  public:
    void attach(std::unique_ptr<net::Link> opened) {
        link = std::move(opened);
        link->on_bytes = [this](ByteSpan bytes) {
            if (error.ok()) error = session.feed(bytes, *this);
        };
        link->on_closed = [this](Status) { closed = true; };
    }
    void say_hello(uint64_t credit = 1 << 30) { link->send(session.hello_for({.credit = credit, .build = "test"})); }
    void send_program(wire::FrameHeader header, uint32_t number, const moe::Program& program, uint32_t layer_begin,
                      uint32_t layer_end) {
        link->send(wire::encode(header, wire::ProgramFrame{number, layer_begin, layer_end, encode_program(program)}));
    }

    struct Answer {
        std::vector<float> rows;
        bool complete = false;
        int n_tiles = 0;
        std::optional<wire::Refuse> refused;
    };

    std::unique_ptr<net::Link> link;
    wire::Session session{wire::Side::backbone, 1 << 26};
    Status error;
    bool closed = false;
    std::optional<wire::Welcome> welcome;
    std::map<uint64_t, Answer> answers;
    std::vector<uint64_t> tile_order;  // request of each tile
    uint64_t credit_back = 0;
    std::vector<wire::Pong> pongs;
    int n_pings = 0;
    std::optional<wire::GoAway> goaway;
    bool give_credit = true;
    std::function<void()> on_change;  // after every answer; for tests with threads

    void on_welcome(const wire::Welcome& received) override { welcome = received; }
    void on_result(const wire::FrameHeader& header, const wire::ResultTile& tile) override {
        Answer& answer = answers[header.request];
        ASSERT_EQ(header.row_offset * size_t{tile.n_out}, answer.rows.size()) << "tiles in order, without a gap";
        const size_t at = answer.rows.size();
        answer.rows.resize(at + size_t{header.rows} * tile.n_out);
        std::memcpy(answer.rows.data() + at, tile.rows.data(), tile.rows.size());
        answer.complete = (header.flags & wire::flag_last_tile) != 0;
        ++answer.n_tiles;
        tile_order.push_back(header.request);
        if (give_credit) link->send(wire::encode(wire::Credit{session.payload_bytes()}));
    }
    void on_refuse(const wire::FrameHeader& header, const wire::Refuse& refuse) override {
        answers[header.request].refused = refuse;
    }
    void on_credit(const wire::Credit& credit) override { credit_back += credit.bytes; }
    void on_ping(const wire::Ping& ping) override {
        ++n_pings;
        link->send(wire::encode(wire::Pong{.nonce = ping.nonce}));
    }
    void on_pong(const wire::Pong& pong) override { pongs.push_back(pong); }
    void on_goaway(const wire::GoAway& received) override { goaway = received; }
};

/// Holds layers 2 and 3, four experts; x has 3 numbers, a row 2: {sum of x, expert + 100 * layer}.
class TestEngine final : public moe::Engine {
  public:
    std::vector<int> layers() const override { return {2, 3}; }
    moe::LayerShapes shapes(int) const override {
        moe::LayerShapes shapes;
        shapes.matrix[static_cast<size_t>(moe::Matrix::up)] = {.present = true, .n_in = 3, .n_out = 5};
        shapes.matrix[static_cast<size_t>(moe::Matrix::down)] = {.present = true, .n_in = 5, .n_out = 2};
        return shapes;
    }
    int n_expert() const override { return 4; }
    uint64_t bytes() const override { return 1; }
    Status compute_rows(int layer, const moe::Program&, std::span<const float> x, std::span<const uint32_t> x_row,
                        std::span<const uint32_t> expert, const TakeRows& take) override {
        ++n_calls;
        if (!next_status.ok()) return std::exchange(next_status, Status());
        std::vector<float> y(2 * x_row.size());
        for (size_t p = 0; p < x_row.size(); ++p) {
            y[2 * p] = x[3 * x_row[p]] + x[3 * x_row[p] + 1] + x[3 * x_row[p] + 2];
            y[2 * p + 1] = static_cast<float>(expert[p]) + 100.0f * static_cast<float>(layer);
        }
        take(y);
        return {};
    }
    int n_calls = 0;
    Status next_status;
};

/// Computes for `time_per_job` of the loop's time, one after the other.
class TestComputer final : public worker::Computer {
  public:
    explicit TestComputer(net::Loop& loop) : loop_(loop) {}
    void start(worker::ComputeJob job, Done done) override {
        busy_until_ = std::max(busy_until_, loop_.now()) + time_per_job;
        ++n_under_way;
        n_most_under_way = std::max(n_most_under_way, n_under_way);
        loop_.after(busy_until_ - loop_.now(), [this, job = std::move(job), done = std::move(done)] {
            --n_under_way;
            done(runner_.run(job, pairs_done_, stop_));
        });
    }
    uint64_t pairs_done() const override { return pairs_done_; }

    Duration time_per_job = std::chrono::milliseconds(10);
    int n_under_way = 0, n_most_under_way = 0;

  private:
    net::Loop& loop_;
    Instant busy_until_{0};
    worker::JobRunner runner_{loop_};
    std::atomic<uint64_t> pairs_done_ = 0;
    std::atomic<bool> stop_ = false;
};

/// up, silu, down.
inline moe::Program simple_program() {
    moe::Program program;
    program.steps = {{.op = moe::Op::matmul, .matrix = moe::Matrix::up, .a = 0},
                     {.op = moe::Op::silu, .a = 1},
                     {.op = moe::Op::matmul, .matrix = moe::Matrix::down, .a = 2}};
    return program;
}

}  // namespace linkcpp::test
