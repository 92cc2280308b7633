// Slices that come and go while a worker serves: what backbones see, what is kept on disk, what is never served.
#include "worker/process_fixture.h"
#include "worker/self_test.h"
#include "worker/slice_shelf.h"

#include <cmath>

namespace linkcpp::worker {
namespace {

using client::Segment;

class ServingTest : public WorkerProcess {
  protected:
    ServingTest() {
        auto opened = moe::Device::open("", 1);
        EXPECT_TRUE(opened.ok());
        device = *opened;
        start();
    }
    ~ServingTest() override { end(); }
    void start() {
        serving =
            std::make_unique<Serving>(network, device, net::Address{"127.0.0.1", 0}, ServerSettings{.build = "test"});
        shelf = std::make_unique<SliceShelf>(
            folder.path(), *serving, device, "",
            [this](const client::Lease& lease, const std::string& path, std::atomic<uint64_t>& arrived,
                   const std::atomic<bool>& cancelled) { return fetch(lease, path, arrived, cancelled); });
    }
    void end() {
        shelf.reset();
        serving.reset();
    }
    Status fetch(const client::Lease& lease, const std::string& path, std::atomic<uint64_t>& arrived,
                 const std::atomic<bool>& cancelled) {
        while (hold_downloads && !cancelled)
            std::this_thread::yield();
        if (cancelled) return {Code::unavailable, "cancelled"};
        const Segment& what = source.value_or(lease.what);
        const std::string name = cut("cut.gguf", {.layer_begin = static_cast<int>(what.layer_begin),
                                                  .layer_end = static_cast<int>(what.layer_end),
                                                  .expert_begin = static_cast<int>(what.expert_begin),
                                                  .expert_end = static_cast<int>(what.expert_end)});
        Bytes bytes = test::read_file(name);
        if (flip) bytes[bytes.size() - 1000] ^= 1;
        test::write_file(path, bytes);
        arrived = bytes.size();
        return {};
    }
    Result<SlicePort::Kept> fetched(const Segment& what) {
        client::Lease lease;
        lease.what = what;
        shelf->fetch(lease);
        while (true) {
            auto state = shelf->fetching();
            if (state.ended) return *state.ended;
            std::this_thread::yield();
        }
    }
    std::vector<wire::SliceOffer> offers() {
        const auto address = net::Address::parse(shelf->address());
        EXPECT_TRUE(address.ok());
        return Backbone(address->port).end.welcome->slices;
    }

    std::shared_ptr<moe::Device> device;
    net::TcpNetwork network{2};
    std::unique_ptr<Serving> serving;
    std::unique_ptr<SliceShelf> shelf;
    std::atomic<bool> hold_downloads = false, flip = false;
    std::optional<Segment> source;
};

TEST_F(ServingTest, SlicesComeAndGoAtOneAddress) {
    EXPECT_EQ(shelf->address(), "");
    const Segment first{"m", 0, 1, 0, 8}, second{"m", 1, 3, 8, 16}, third{"m", 3, 4, 0, 4};
    for (const Segment& what : {first, second, third})
        ASSERT_TRUE(fetched(what).ok());
    ASSERT_TRUE(shelf->serve({first}).ok());
    const std::string address = shelf->address();
    EXPECT_EQ(offers().size(), 1u);
    Backbone connected(net::Address::parse(address)->port);
    ASSERT_TRUE(shelf->serve({first, second}).ok());
    EXPECT_TRUE(connected.wait([&] { return connected.end.closed; }));
    EXPECT_EQ(connected.end.goaway->reason, wire::RefuseCode::draining) << "a backbone knows to come back";
    EXPECT_EQ(shelf->address(), address);
    EXPECT_EQ(offers().size(), 2u);
    ASSERT_TRUE(shelf->serve({second, third}).ok());
    const auto now = offers();
    ASSERT_EQ(now.size(), 2u);
    EXPECT_EQ(now[0].expert_begin, 8u);
    EXPECT_EQ(now[1].layer_begin, 3u);
    ASSERT_TRUE(shelf->serve({}).ok());
    EXPECT_EQ(shelf->address(), "");
}

TEST_F(ServingTest, WhatIsInFlightIsFinishedBeforeTheSlicesChange) {
    const Segment first{"m", 0, 4, 0, 16}, second{"m", 0, 1, 0, 4};
    ASSERT_TRUE(fetched(first).ok());
    ASSERT_TRUE(shelf->serve({first}).ok());
    const auto info = moe::SliceFile::open(shelf->path_of(first))->info();
    Backbone backbone(net::Address::parse(shelf->address())->port);
    backbone.send(wire::encode(header(info, 0, 0), wire::ProgramFrame{1, 0, 4, encode_program(gated_program())}));
    backbone.send(wire::encode(header(info, 1, 1), prompt(1000, 16, 1)));
    backbone.send(wire::encode(wire::Ping{1}));
    ASSERT_TRUE(backbone.wait([&] { return !backbone.end.pongs.empty(); }));
    ASSERT_TRUE(fetched(second).ok());
    ASSERT_TRUE(shelf->serve({second}).ok());
    EXPECT_TRUE(backbone.answer(1).complete);
}

TEST_F(ServingTest, AnotherStartFindsWhatIsWhole) {
    const Segment first{"m", 0, 1, 0, 8}, second{"m", 1, 2, 0, 8}, third{"m", 2, 3, 0, 8};
    const auto kept = fetched(first);
    ASSERT_TRUE(kept.ok());
    EXPECT_EQ(kept->n_experts, 8u);
    EXPECT_EQ(kept->fingerprint.size(), 64u);
    ASSERT_TRUE(fetched(second).ok());
    ASSERT_TRUE(fetched(third).ok());
    Bytes bytes = test::read_file(shelf->path_of(second));
    bytes[bytes.size() - 1000] ^= 1;
    test::write_file(shelf->path_of(second), bytes);
    std::filesystem::rename(shelf->path_of(third), shelf->path_of({"m", 3, 4, 0, 8}));
    test::write_file(shelf->path_of({"m", 0, 1, 8, 16}) + ".part", Bytes(100));
    end();
    start();
    const auto found = shelf->kept();
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].what, first);
    EXPECT_EQ(found[0].bytes, kept->bytes);
    EXPECT_TRUE(shelf->serve({first}).ok());
    EXPECT_EQ(shelf->serve({first, second}).code(), Code::corrupt) << "damaged";
    EXPECT_EQ(offers().size(), 1u);
    EXPECT_TRUE(shelf->serve({}).ok());
    EXPECT_FALSE(std::filesystem::exists(shelf->path_of({"m", 3, 4, 0, 8}))) << "not what its name says";
    EXPECT_TRUE(std::filesystem::exists(shelf->path_of({"m", 0, 1, 8, 16}) + ".part"))
        << "the next attempt goes on with it";
    shelf->forget(first);
    shelf->forget(second);
    EXPECT_TRUE(shelf->kept().empty());
}

TEST_F(ServingTest, DamagedWrongAndMisnamedDownloadsAreRefused) {
    flip = true;
    ASSERT_TRUE(fetched({"m", 0, 1, 0, 8}).ok());
    EXPECT_EQ(shelf->serve({{"m", 0, 1, 0, 8}}).code(), Code::corrupt);
    EXPECT_EQ(shelf->address(), "");
    shelf->forget({"m", 0, 1, 0, 8});
    flip = false;
    source = Segment{"m", 0, 1, 0, 4};
    EXPECT_EQ(fetched({"m", 0, 1, 0, 8}).status().code(), Code::mismatch);
    source.reset();
    for (const char* model : {"", "..", ".hidden", "a/b", "../../m"})
        EXPECT_EQ(fetched({model, 0, 1, 0, 8}).status().code(), Code::invalid_argument) << model;
}

TEST_F(ServingTest, ADownloadCanBeStopped) {
    hold_downloads = true;
    client::Lease lease;
    lease.what = {"m", 0, 1, 0, 8};
    shelf->fetch(lease);
    EXPECT_FALSE(shelf->fetching().ended.has_value());
    shelf->stop_fetching();
    EXPECT_FALSE(std::filesystem::exists(shelf->path_of(lease.what)));
}

TEST_F(ServingTest, AFileThatCannotBeServedLeavesTheOthersInService) {
    const Segment first{"m", 0, 1, 0, 8};
    ASSERT_TRUE(fetched(first).ok());
    ASSERT_TRUE(shelf->serve({first}).ok());
    EXPECT_FALSE(shelf->serve({first, {"m", 2, 3, 0, 8}}).ok());
    EXPECT_EQ(offers().size(), 1u);
}

/// Answers with what the test says.
class BadEngine final : public moe::Engine {
  public:
    explicit BadEngine(float v, bool gate_up = false) : value(v), merged(gate_up) {}
    std::vector<int> layers() const override { return {7}; }
    moe::LayerShapes shapes(int) const override {
        moe::LayerShapes shapes;
        const moe::Matrix first = merged ? moe::Matrix::gate_up : moe::Matrix::up;
        shapes.matrix[static_cast<size_t>(first)] = {true, true, 3, merged ? 10 : 5};
        shapes.matrix[static_cast<size_t>(moe::Matrix::down)] = {true, true, 5, 2};
        return shapes;
    }
    int n_expert() const override { return 4; }
    uint64_t bytes() const override { return 1; }
    Status compute_rows(int, const moe::Program&, std::span<const float>, std::span<const uint32_t>,
                        std::span<const uint32_t> expert, const TakeRows& take) override {
        std::vector<float> y(2 * expert.size(), 1.0f);
        if (std::isfinite(value))
            std::fill(y.begin() + 4, y.begin() + 6, value);
        else
            y[5] = value;
        take(y);
        return {};
    }
    float value;
    bool merged;
};

TEST(SelfTest, FindsExpertsThatComputeNothingOfUse) {
    for (bool merged : {false, true}) {
        BadEngine good(2, merged);
        EXPECT_TRUE(self_test(good).ok());
    }
    for (float value : {std::nanf(""), INFINITY, 0.0f}) {
        BadEngine bad(value);
        const Status status = self_test(bad);
        EXPECT_EQ(status.code(), Code::corrupt);
        EXPECT_NE(status.message().find("layer 7, expert 2"), std::string::npos) << status.message();
    }
}

}  // namespace
}  // namespace linkcpp::worker
