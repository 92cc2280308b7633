// The state machine: what is allowed when, for both sides, and how versions are agreed on.
#include "wire/samples.h"
#include "wire/session.h"

#include <gtest/gtest.h>

namespace linkcpp::wire::test {
namespace {

constexpr uint32_t cap = 1 << 20;

/// Answers HELLO as a worker does, and keeps a list of what was reported.
struct Recorder : SessionHandler {
    Session* worker = nullptr;
    std::vector<std::string> events;
    Bytes answer;
    Welcome welcome;
    Hello hello;
    Status malformed;

    void on_hello(const Hello& received) override {
        events.push_back("hello");
        hello = received;
        if (worker) answer = worker->welcome_for(received, sample_welcome());
    }
    void on_welcome(const Welcome& received) override {
        events.push_back("welcome");
        welcome = received;
    }
    void on_program(const FrameHeader&, ProgramFrame&&) override { events.push_back("program"); }
    void on_compute(const FrameHeader&, Compute&&) override { events.push_back("compute"); }
    void on_result(const FrameHeader&, const ResultTile&) override { events.push_back("result"); }
    void on_refuse(const FrameHeader&, const Refuse&) override { events.push_back("refuse"); }
    void on_credit(const Credit&) override { events.push_back("credit"); }
    void on_ping(const Ping&) override { events.push_back("ping"); }
    void on_pong(const Pong&) override { events.push_back("pong"); }
    void on_goaway(const GoAway&) override { events.push_back("goaway"); }
    void on_malformed_request(const FrameHeader&, const Status& status) override {
        events.push_back("malformed");
        malformed = status;
    }
};

struct Pair {
    Session backbone, worker;
    Recorder at_backbone, at_worker;

    explicit Pair(VersionRange ours = {}, VersionRange theirs = {})
        : backbone(Side::backbone, cap, ours), worker(Side::worker, 2 * cap, theirs) {
        at_worker.worker = &worker;
    }
    Status shake_hands() {
        LINKCPP_TRY(worker.feed(backbone.hello_for(sample_hello()), at_worker));
        return backbone.feed(at_worker.answer, at_backbone);
    }
};

TEST(Session, handshake_opens_both_ends) {
    Pair pair;
    EXPECT_FALSE(pair.backbone.established());
    EXPECT_EQ(pair.backbone.peer_max_payload(), 0u);
    ASSERT_TRUE(pair.shake_hands().ok());
    EXPECT_TRUE(pair.backbone.established());
    EXPECT_TRUE(pair.worker.established());
    EXPECT_EQ(pair.backbone.peer_max_payload(), 2 * cap);
    EXPECT_EQ(pair.worker.peer_max_payload(), cap);
    EXPECT_EQ(pair.at_worker.hello.numeric_class, "CPU:AVX2");
    EXPECT_EQ(pair.at_backbone.welcome.slices.size(), 1u);
}

TEST(Session, versions_meet_at_the_newest_common_one) {
    struct Case {
        VersionRange backbone, worker;
        int expected;  // 0: they do not meet
    };
    for (const Case& c : {Case{{1, 1}, {1, 1}, 1}, Case{{1, 3}, {1, 2}, 2}, Case{{1, 2}, {2, 5}, 2},
                          Case{{2, 4}, {1, 9}, 4}, Case{{1, 1}, {2, 3}, 0}, Case{{4, 5}, {1, 3}, 0}}) {
        Pair pair(c.backbone, c.worker);
        const Status status = pair.shake_hands();
        EXPECT_EQ(status.ok(), c.expected != 0) << status.message();
        if (c.expected) {
            EXPECT_EQ(pair.backbone.version(), c.expected);
            EXPECT_EQ(pair.worker.version(), c.expected);
        } else {
            EXPECT_EQ(status.code(), Code::mismatch);
            // Both versions are in the message, and the other end can read it.
            EXPECT_NE(status.message().find(std::to_string(c.backbone.max)), std::string::npos);
            EXPECT_NE(status.message().find(std::to_string(c.worker.min)), std::string::npos);
            ASSERT_TRUE(pair.backbone.feed(Session::goaway_for(status), pair.at_backbone).ok());
            EXPECT_EQ(pair.at_backbone.events, std::vector<std::string>{"goaway"});
        }
    }
}

TEST(Session, a_worker_that_answers_with_a_foreign_version_is_refused) {
    Session backbone(Side::backbone, cap);
    Recorder recorder;
    Welcome welcome = sample_welcome();
    welcome.version = 2;
    EXPECT_EQ(backbone.feed(encode(welcome), recorder).code(), Code::mismatch);
    EXPECT_TRUE(recorder.events.empty());
}

/// The frames of samples.h that an end accepts once the session is open, by name.
std::vector<std::string> accepted_when_open(Side side) {
    std::vector<std::string> names;
    for (const Bytes& frame : sample_frames()) {
        Pair pair;
        EXPECT_TRUE(pair.shake_hands().ok());
        Session& session = side == Side::worker ? pair.worker : pair.backbone;
        Recorder recorder;
        const Status status = session.feed(frame, recorder);
        EXPECT_EQ(status.ok(), recorder.events.size() == 1) << status.message();
        if (status.ok())
            names.push_back(recorder.events[0]);
        else
            EXPECT_EQ(status.code(), Code::corrupt);
    }
    return names;
}

TEST(Session, each_side_accepts_only_what_is_meant_for_it) {
    using Names = std::vector<std::string>;
    EXPECT_EQ(accepted_when_open(Side::worker),
              (Names{"program", "compute", "compute", "credit", "ping", "pong", "goaway"}));
    EXPECT_EQ(accepted_when_open(Side::backbone), (Names{"result", "refuse", "credit", "ping", "pong", "goaway"}));
}

TEST(Session, before_the_handshake_only_the_handshake) {
    for (Side side : {Side::worker, Side::backbone}) {
        for (const Bytes& frame : sample_frames()) {
            Session session(side, cap);
            Recorder recorder;
            const auto type = static_cast<FrameType>(frame[6]);
            const bool expected = side == Side::worker ? type == FrameType::hello
                                                       : type == FrameType::welcome || type == FrameType::goaway;
            EXPECT_EQ(session.feed(frame, recorder).ok(), expected) << frame_type_name(type);
            EXPECT_EQ(recorder.events.size(), expected ? 1u : 0u);
        }
    }
}

TEST(Session, nothing_comes_between_hello_and_welcome) {
    Session worker(Side::worker, cap);
    Recorder silent;  // does not answer
    Bytes stream = encode(sample_hello());
    const Bytes early = encode(Ping{1});
    stream.insert(stream.end(), early.begin(), early.end());
    EXPECT_EQ(worker.feed(stream, silent).code(), Code::corrupt);
    EXPECT_EQ(silent.events, std::vector<std::string>{"hello"});
}

TEST(Session, the_handshake_is_small_and_the_cap_applies_afterwards) {
    Bytes large(header_bytes + max_handshake_payload + 1);
    seal_frame({.type = FrameType::hello}, large);
    Session worker(Side::worker, cap);
    Recorder recorder;
    EXPECT_EQ(worker.feed(large, recorder).code(), Code::exhausted);

    Pair pair;
    ASSERT_TRUE(pair.shake_hands().ok());
    Compute compute = sample_rows();
    compute.n_in = 100000;
    compute.x.assign(200000, 1.0f);
    ASSERT_TRUE(pair.worker.feed(encode({}, compute), pair.at_worker).ok());
    compute.n_in = 300000;
    compute.x.assign(600000, 1.0f);
    EXPECT_EQ(pair.worker.feed(encode({}, compute), pair.at_worker).code(), Code::exhausted);
}

TEST(Session, a_request_with_impossible_content_does_not_end_the_connection) {
    Pair pair;
    ASSERT_TRUE(pair.shake_hands().ok());
    Compute compute = sample_rows();
    compute.x_row[0] = 99;
    ProgramFrame program = sample_program();
    program.code.clear();
    Recorder& worker = pair.at_worker;
    worker.events.clear();
    ASSERT_TRUE(pair.worker.feed(encode({}, compute), worker).ok());
    EXPECT_EQ(worker.malformed.code(), Code::corrupt);
    ASSERT_TRUE(pair.worker.feed(encode({}, program), worker).ok());
    ASSERT_TRUE(pair.worker.feed(encode({}, sample_rows()), worker).ok());
    EXPECT_EQ(worker.events, (std::vector<std::string>{"malformed", "malformed", "compute"}));
}

TEST(Session, an_answer_with_impossible_content_does) {
    Pair pair;
    ASSERT_TRUE(pair.shake_hands().ok());
    Bytes frame = sample_result();
    seal_frame({.type = FrameType::result, .rows = 65}, frame);
    EXPECT_EQ(pair.backbone.feed(frame, pair.at_backbone).code(), Code::corrupt);
}

TEST(Session, any_split_gives_the_same_events) {
    Bytes stream = encode(sample_hello());
    for (int i = 0; i < 3; ++i) {
        for (const Bytes& frame : {encode({}, sample_program()), encode({}, sample_rows()), encode(Ping{1})}) {
            stream.insert(stream.end(), frame.begin(), frame.end());
        }
    }
    std::vector<std::string> expected;
    for (size_t step : {stream.size(), size_t{1}, size_t{7}, size_t{64}}) {
        Session worker(Side::worker, cap);
        Recorder recorder;
        recorder.worker = &worker;
        for (size_t at = 0; at < stream.size(); at += step) {
            ASSERT_TRUE(worker.feed(ByteSpan(stream).subspan(at, std::min(step, stream.size() - at)), recorder).ok());
        }
        if (expected.empty()) expected = recorder.events;
        EXPECT_EQ(recorder.events, expected);
        EXPECT_EQ(recorder.events.size(), 10u);
    }
}

TEST(Session, goaway_names_the_kind_of_error) {
    const auto reason = [](Code code) {
        FrameReader reader;
        reader.feed(Session::goaway_for({code, "because"}));
        auto frame = reader.next();
        auto goaway = decode_goaway(**frame);
        EXPECT_EQ(goaway->message, "because");
        return goaway->reason;
    };
    EXPECT_EQ(reason(Code::mismatch), RefuseCode::version);
    EXPECT_EQ(reason(Code::corrupt), RefuseCode::malformed);
    EXPECT_EQ(reason(Code::exhausted), RefuseCode::malformed);
    EXPECT_EQ(reason(Code::unavailable), RefuseCode::draining);
    EXPECT_EQ(reason(Code::io), RefuseCode::failed);
}

TEST(CreditWindow, spends_and_is_granted_again) {
    CreditWindow window(100);
    EXPECT_TRUE(window.spend(60));
    EXPECT_FALSE(window.spend(60));
    EXPECT_EQ(window.left(), 40u);
    EXPECT_EQ(window.under_way(), 60u);
    EXPECT_TRUE(window.spend(40));
    EXPECT_FALSE(window.spend(1));
    window.grant(60);
    EXPECT_TRUE(window.spend(60));
    window.grant(100);
    EXPECT_EQ(window.left(), 100u);
    EXPECT_EQ(window.under_way(), 0u);
    // More than was spent makes the window larger.
    window.grant(50);
    EXPECT_EQ(window.left(), 150u);
    window.grant(UINT64_MAX);
    EXPECT_EQ(window.left(), UINT64_MAX);
}

TEST(CreditWindow, a_frame_larger_than_the_window_goes_alone) {
    CreditWindow window(100);
    EXPECT_TRUE(window.spend(10));
    EXPECT_FALSE(window.spend(1000));
    window.grant(10);
    EXPECT_TRUE(window.spend(1000));
    EXPECT_FALSE(window.spend(1));
    window.grant(950);
    EXPECT_EQ(window.under_way(), 50u);
    EXPECT_EQ(window.left(), 50u);
    window.grant(50);
    EXPECT_EQ(window.left(), 100u);
    CreditWindow nothing(0);
    EXPECT_TRUE(nothing.spend(5));
    EXPECT_FALSE(nothing.spend(5));
    nothing.grant(5);
    EXPECT_TRUE(nothing.spend(5));
}

}  // namespace
}  // namespace linkcpp::wire::test
