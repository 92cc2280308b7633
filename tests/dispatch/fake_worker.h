#pragma once
// A worker for dispatch's tests, on the simulated network: speaks the real protocol and computes a function that tells
// layer, expert and input apart, so that a row in the wrong place is a wrong number. Faults are switched on by the test.

#include "support/sim_network.h"
#include "wire/session.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace linkcpp::test {

/// Element j of expert e's output row in layer l for an input row that begins with x0.
inline float expert_value(uint32_t layer, uint32_t expert, float x0, uint32_t j) {
    return (x0 * static_cast<float>(expert + 1) + static_cast<float>(j)) * static_cast<float>(layer + 1);
}

/// The answer to a request; experts are counted from `expert_begin`.
inline std::vector<float> fake_rows(uint32_t layer, const wire::Compute& compute, uint32_t expert_begin,
                                    uint32_t n_out) {
    std::vector<float> rows(static_cast<size_t>(compute.n_rows_out) * n_out, 0.0f);
    for (size_t p = 0; p < compute.expert.size(); ++p) {
        const size_t row = compute.output == wire::Output::rows ? p : compute.group[p];
        const float weight = compute.weight.empty() ? 1.0f : compute.weight[p];
        for (uint32_t j = 0; j < n_out; ++j) {
            rows[row * n_out + j] += weight * expert_value(layer, compute.expert[p] + expert_begin,
                                                           compute.x[size_t{compute.x_row[p]} * compute.n_in], j);
        }
    }
    return rows;
}

class FakeWorker {
  public:
    /// Where a worker, or the link to it, breaks.
    enum class Point {
        none,
        before_welcome,
        after_welcome,
        on_compute,
        in_first_tile,
        after_first_tile,
        before_last_tile,
        after_last_tile,
    };
    enum class Way {
        die,    ///< the process ends: connections are reset, nothing listens any more
        stall,  ///< nothing comes and goes any more
        hang,   ///< the process answers pings, but no requests
    };
    void break_at(Point point, Way way) {
        break_point_ = point;
        break_way_ = way;
    }

    struct Faults {
        bool swallow = false;  ///< takes requests and never answers them (but answers pings)
        bool deaf = false;     ///< answers nothing at all
        std::optional<wire::RefuseCode> refuse;
        bool not_finite = false;
        bool wrong_slice = false, wrong_layer = false, short_answer = false, wrong_width = false, twice = false;
        bool no_credit = false;    ///< takes requests, answers them, but grants no credit
        bool lying_pong = false;   ///< its pongs say that it gets on
        bool garbage = false;      ///< bytes that are no frame
        std::optional<float> lie;  ///< added to the last number
        bool last_bit = false;     ///< of the first number
        bool zeros = false, another_expert = false, long_answer = false;
        bool wrong_offset = false, wrong_request = false, wrong_attempt = false;
    };

    FakeWorker(SimNetwork& network, net::Address address, wire::SliceOffer offer, uint32_t n_out)
        : network_(network), address_(std::move(address)), offer_(offer), n_out_(n_out) {
        start();
    }
    void start() {
        auto listener = network_.listen(address_, [this](std::unique_ptr<net::Link> link) { accept(std::move(link)); });
        listener_ = std::move(*listener);
    }
    /// As a killed process: nothing listens, connections are reset.
    void kill() {
        listener_.reset();
        network_.cut(address_);
        clients_.clear();
    }

    /// One way. Before the dispatcher connects: it asks the nearer worker first.
    void far(Duration latency) { network_.path(address_).latency = latency; }
    /// A sign of life on every connection.
    void say_something() {
        for (auto& client : clients_)
            client->link->send(wire::encode(wire::Pong{}));
    }

    /// Goes on at once after a request that took it long to read.
    void wake() {
        for (auto& client : clients_) {
            client->busy_until = {};
            client->link->send(wire::encode(wire::Pong{}));
        }
    }

    Faults faults;
    uint64_t pongs = 0;
    Duration compute_time{0};
    double reads_at =
        0;  ///< bytes per second; > 0: a request is checked so long, and nothing else is answered meanwhile
    uint64_t credit = 64 << 20;
    uint32_t max_payload = 64 << 20;
    std::string numeric_class = "test";
    size_t requests = 0, pairs = 0, largest_backlog = 0;
    std::vector<uint64_t> credit_back;  ///< of each CREDIT
    std::vector<wire::Output> outputs;
    std::vector<std::set<uint32_t>> experts;  // of each request

  private:
    struct Client : wire::SessionHandler {
        explicit Client(FakeWorker* w) : worker(w), session(wire::Side::worker, w->max_payload) {}
        FakeWorker* worker;
        std::unique_ptr<net::Link> link;
        wire::Session session;

        void on_hello(const wire::Hello& hello) override {
            if (worker->faults.deaf || worker->breaks(Point::before_welcome)) return;
            wire::Welcome welcome;
            welcome.max_payload = worker->max_payload;
            welcome.credit = worker->credit;
            welcome.numeric_class = worker->numeric_class;
            welcome.slices = {worker->offer_};
            link->send(session.welcome_for(hello, welcome));
            worker->breaks(Point::after_welcome);
        }
        void on_credit(const wire::Credit& given) override { worker->credit_back.push_back(given.bytes); }
        void on_ping(const wire::Ping& ping) override {
            const uint64_t done = worker->faults.lying_pong ? ++worker->pongs : 0;
            const uint32_t queued = worker->faults.lying_pong ? UINT32_MAX : 0;
            if (worker->faults.deaf) return;
            worker->network_.loop().after(std::max(Duration{0}, busy_until - worker->network_.loop().now()),
                                          [this, alive = alive, pong = wire::Pong{ping.nonce, done, queued, 255, 127}] {
                                              if (*alive) link->send(wire::encode(pong));
                                          });
        }
        void on_compute(const wire::FrameHeader& header, wire::Compute&& compute) override {
            worker->requests += 1;
            worker->pairs += compute.expert.size();
            worker->outputs.push_back(compute.output);
            worker->experts.emplace_back(compute.expert.begin(), compute.expert.end());
            if (worker->breaks(Point::on_compute)) return;
            if (!worker->faults.no_credit) link->send(wire::encode(wire::Credit{session.payload_bytes()}));
            if (worker->reads_at > 0) {
                busy_until = worker->network_.loop().now() +
                             std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
                                 static_cast<double>(session.payload_bytes()) / worker->reads_at));
            }
            const auto at = std::max(busy_until, worker->network_.loop().now()) + worker->compute_time;
            worker->network_.loop().after(at - worker->network_.loop().now(),
                                          [this, alive = alive, header, compute = std::move(compute)] {
                                              if (*alive) worker->answer(*link, header, compute);
                                          });
        }
        Instant busy_until{};
        std::shared_ptr<bool> alive = std::make_shared<bool>(true);
        ~Client() override { *alive = false; }
    };

    void accept(std::unique_ptr<net::Link> link) {
        auto client = std::make_unique<Client>(this);
        client->link = std::move(link);
        Client* raw = client.get();
        raw->link->on_bytes = [raw](ByteSpan bytes) { (void)raw->session.feed(bytes, *raw); };
        raw->link->on_closed = [](const Status&) {};
        clients_.push_back(std::move(client));
    }

    void answer(net::Link& link, wire::FrameHeader header, const wire::Compute& compute) {
        if (faults.swallow || faults.deaf) return;
        if (faults.garbage) return link.send(Bytes(200, 0x55));
        if (faults.refuse) return link.send(wire::encode(header, wire::Refuse{*faults.refuse, "as the test wants it"}));
        std::vector<float> rows =
            fake_rows(header.layer, compute, offer_.expert_begin + (faults.another_expert ? 1 : 0), n_out_);
        if (faults.not_finite) rows.back() = std::numeric_limits<float>::quiet_NaN();
        if (faults.lie) rows.back() += *faults.lie;
        if (faults.last_bit) rows.front() = std::nextafter(rows.front(), 0.0f);
        if (faults.zeros) std::fill(rows.begin(), rows.end(), 0.0f);
        if (faults.wrong_slice) header.slice[0] ^= 1;
        if (faults.wrong_layer) header.layer += 1;
        if (faults.wrong_request) header.request += 1000000;
        if (faults.wrong_attempt) header.attempt += 1;
        uint32_t n_rows = compute.n_rows_out;
        if (faults.short_answer) n_rows -= 1;
        if (faults.long_answer) n_rows += 1;
        rows.resize(static_cast<size_t>(n_rows) * n_out_);
        for (int times = faults.twice ? 2 : 1; times > 0; --times) {
            if (!send_tiles(link, header, rows, n_rows)) return;
        }
    }

    /// False: something broke on the way.
    bool send_tiles(net::Link& link, wire::FrameHeader header, std::span<const float> rows, uint32_t n_rows) {
        const uint32_t width = faults.wrong_width ? n_out_ - 1 : n_out_;
        for (uint32_t first = 0; first < std::max(n_rows, 1u); first += wire::max_tile_rows) {
            const uint32_t count = std::min(wire::max_tile_rows, n_rows - first);
            const bool last = first + count == n_rows;
            header.row_offset = first + (faults.wrong_offset ? 1 : 0);
            header.rows = count;
            header.flags = last ? wire::flag_last_tile : 0;
            if (last && breaks(Point::before_last_tile)) return false;
            Bytes tile = wire::encode_result(header, 0, 0, width,
                                             rows.subspan(size_t{first} * n_out_, static_cast<size_t>(count) * width));
            if (first == 0 && breaks(Point::in_first_tile)) {
                if (break_way_ != Way::stall) link.send(Bytes(tile.begin(), tile.begin() + 80));
                return false;
            }
            link.send(std::move(tile));
            if (first == 0 && breaks(Point::after_first_tile)) return false;
            if (last && breaks(Point::after_last_tile)) return false;
        }
        return true;
    }

    /// Is this where it breaks? Then it does, as soon as what was sent has arrived, and for good.
    bool breaks(Point point) {
        if (is_broken_) return true;
        if (point != break_point_) return false;
        is_broken_ = true;
        network_.loop().after(std::chrono::microseconds(1), [this, way = break_way_] {
            if (way == Way::die) kill();
            if (way == Way::stall) network_.path(address_).partition = true;
        });
        return true;
    }

    SimNetwork& network_;
    net::Address address_;
    wire::SliceOffer offer_;
    uint32_t n_out_;
    Point break_point_ = Point::none;
    Way break_way_ = Way::die;
    bool is_broken_ = false;
    std::unique_ptr<net::Listener> listener_;
    std::vector<std::unique_ptr<Client>> clients_;
};

}  // namespace linkcpp::test
