// Every field of every frame that a worker can send, set to what makes no sense: the rows come from another holder, and are
// the right ones.
#include "dispatch/dispatcher.h"
#include "dispatch/fake_worker.h"
#include "wire/forge.h"

#include <gtest/gtest.h>

namespace linkcpp {
namespace {

using namespace std::chrono_literals;
using namespace wire::test;
using wire::FrameHeader;
using wire::FrameType;
using wire::RefuseCode;

constexpr uint32_t n_in = 3, n_out = 5, n_expert = 8, layer = 2, most = UINT32_MAX;
constexpr size_t f = at_payload;

/// What the hostile worker sends as its WELCOME, and in answer to a COMPUTE for rows; the sound frames are given.
struct Attack {
    const char* name;
    Bytes (*welcome)(const Bytes& sound);
    Bytes (*answer)(const Bytes& result, const FrameHeader& header);
};
void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

Bytes sound_welcome(const Bytes& frame) { return frame; }

wire::SliceOffer whole() { return {.slice = {7}, .layer_end = 4, .expert_end = n_expert}; }

/// Accepts connections and answers as the attack says.
class HostilePeer {
  public:
    HostilePeer(test::SimNetwork& network, const net::Address& address, const Attack& attack) : attack_(attack) {
        auto listening = network.listen(address, [this](std::unique_ptr<net::Link> link) {
            clients_.push_back(std::make_unique<Client>(*this, std::move(link)));
        });
        listener_ = std::move(*listening);
    }
    size_t n_requests = 0;

  private:
    struct Client final : wire::SessionHandler {
        Client(HostilePeer& owner, std::unique_ptr<net::Link> accepted) : peer(owner), link(std::move(accepted)) {
            link->on_bytes = [this](ByteSpan bytes) { (void)session.feed(bytes, *this); };
        }
        void on_hello(const wire::Hello& hello) override {
            wire::Welcome welcome{.credit = 1 << 20, .numeric_class = "test", .slices = {whole()}};
            link->send(peer.attack_.welcome(session.welcome_for(hello, welcome)));
        }
        void on_ping(const wire::Ping& ping) override { link->send(wire::encode(wire::Pong{.nonce = ping.nonce})); }
        void on_compute(const FrameHeader& header, wire::Compute&& compute) override {
            ++peer.n_requests;
            FrameHeader answer = header;
            answer.flags = wire::flag_last_tile;
            answer.time_allowed_ms = 0;
            const std::vector<float> rows(size_t{compute.n_rows_out} * n_out, 4.0f);
            link->send(peer.attack_.answer(wire::encode_result(answer, 0, 0, n_out, rows), answer));
        }
        HostilePeer& peer;
        std::unique_ptr<net::Link> link;
        wire::Session session{wire::Side::worker, 1 << 20};
    };

    const Attack& attack_;
    std::unique_ptr<net::Listener> listener_;
    std::vector<std::unique_ptr<Client>> clients_;
};

class HostileWorker : public testing::TestWithParam<Attack> {
  protected:
    /// Two tokens, two experts each, rows wanted.
    void expect_right_rows(dispatch::Dispatcher& dispatcher) {
        const std::vector<float> x = {1, 0, 0, 2, 0, 0}, weight(4, 0.5f);
        const std::vector<int32_t> expert = {0, 3, 5, 7};
        auto program = std::make_shared<dispatch::ProgramCode>();
        program->code = {1, 2, 3};
        program->n_in = n_in;
        program->n_out = n_out;
        dispatch::ExpertJob job;
        job.layer = layer;
        job.program = program;
        job.n_tokens = job.n_used = 2;
        job.want_sums = false;
        job.x = x;
        job.expert = expert;
        job.weight = weight;
        std::optional<Status> status;
        dispatch::JobResult result;
        dispatcher.start(job, [&](Status ended, dispatch::JobResult rows) {
            status = std::move(ended);
            result = std::move(rows);
        });
        ASSERT_TRUE(network.sim().run_until([&] { return status.has_value(); }, 60s)) << "the job never ended";
        ASSERT_TRUE(status->ok()) << status->message();
        for (size_t pair = 0; pair < 4; ++pair) {
            for (uint32_t j = 0; j < n_out; ++j) {
                EXPECT_EQ(result.rows[pair * n_out + j],
                          test::expert_value(layer, static_cast<uint32_t>(expert[pair]), x[pair / 2 * n_in], j));
            }
        }
    }
    test::SimNetwork network;
};

TEST_P(HostileWorker, IsNotBelieved) {
    const net::Address bad{"bad", 1}, good{"good", 1};
    const HostilePeer hostile(network, bad, GetParam());
    test::FakeWorker worker(network, good, whole(), n_out);
    // The hostile one is asked first, being of the same class.
    worker.numeric_class = "other";
    dispatch::Settings settings;
    settings.numeric_class = "test";
    dispatch::Dispatcher dispatcher(network, settings, {bad, good}, nullptr);
    expect_right_rows(dispatcher);
    EXPECT_EQ(hostile.n_requests, GetParam().answer ? 1u : 0u);
    EXPECT_GE(worker.requests, 1u);
    expect_right_rows(dispatcher);
}

template <size_t Offset, typename T, T Value>
Bytes set_in_welcome(const Bytes& frame) {
    return with<T>(frame, Offset, Value);
}
/// Where the offers begin: behind the fixed fields, an empty build, the class "test", no identity and the count.
constexpr size_t at_count = f + 14 + 2 + 6 + 2, at_offer = at_count + 2;

const Attack welcomes[] = {
    {"version_zero", set_in_welcome<f, uint16_t, 0>, nullptr},
    {"version_not_offered", set_in_welcome<f, uint16_t, 2>, nullptr},
    {"cap_zero", set_in_welcome<f + 2, uint32_t, 0>, nullptr},
    {"cap_over_the_limit", set_in_welcome<f + 2, uint32_t, most>, nullptr},
    {"build_longer_than_the_frame", set_in_welcome<f + 14, uint16_t, UINT16_MAX>, nullptr},
    {"build_too_long",
     [](const Bytes& w) {
         return with_strings(w, 14, 129, 0, 0, {0, 0});
     },
     nullptr},
    {"class_too_long",
     [](const Bytes& w) {
         return with_strings(w, 14, 0, 513, 0, {0, 0});
     },
     nullptr},
    {"identity_too_long",
     [](const Bytes& w) {
         return with_strings(w, 14, 0, 0, 353, {0, 0});
     },
     nullptr},
    {"no_slices",
     [](const Bytes& w) {
         return with_strings(w, 14, 0, 0, 0, {0, 0});
     },
     nullptr},
    {"count_of_slices_less", set_in_welcome<at_count, uint16_t, 0>, nullptr},
    {"count_of_slices_more", set_in_welcome<at_count, uint16_t, 2>, nullptr},
    {"count_of_slices_over_the_cap", set_in_welcome<at_count, uint16_t, 97>, nullptr},
    {"count_of_slices_largest", set_in_welcome<at_count, uint16_t, UINT16_MAX>, nullptr},
    {"layers_backwards", set_in_welcome<at_offer + 16, uint32_t, 5>, nullptr},
    {"layers_empty", set_in_welcome<at_offer + 20, uint32_t, 0>, nullptr},
    {"layers_largest", set_in_welcome<at_offer + 20, uint32_t, most>, nullptr},
    {"experts_backwards", set_in_welcome<at_offer + 24, uint32_t, 9>, nullptr},
    {"experts_empty", set_in_welcome<at_offer + 28, uint32_t, 0>, nullptr},
    {"experts_largest", set_in_welcome<at_offer + 28, uint32_t, most>, nullptr},
    {"one_byte_short", [](const Bytes& w) { return shorter(w); }, nullptr},
    {"one_byte_long", [](const Bytes& w) { return longer(w); }, nullptr},
    {"over_the_handshake_cap", [](const Bytes& w) { return with_payload_size(w, 4097); }, nullptr},
    {"hello_instead", [](const Bytes&) { return wire::encode(wire::Hello{.max_payload = 4096}); }, nullptr},
    {"result_instead", [](const Bytes&) { return wire::encode_result({}, 0, 0, 1, std::vector<float>{1}); }, nullptr},
    {"goaway_instead",
     [](const Bytes&) {
         return wire::encode(wire::GoAway{RefuseCode::busy, "full"});
     },
     nullptr},
};

template <size_t Offset, typename T, T Value>
Bytes set_in_result(const Bytes& frame, const FrameHeader&) {
    return with<T>(frame, Offset, Value);
}

using Header = const FrameHeader&;
const Attack answers[] = {
    {"magic", sound_welcome, set_in_result<0, uint8_t, 0>},
    {"version", sound_welcome, set_in_result<at_version, uint16_t, 2>},
    {"type_unknown", sound_welcome, set_in_result<at_type, uint8_t, 11>},
    {"type_that_backbones_send", sound_welcome, set_in_result<at_type, uint8_t, 4>},
    {"flags_reserved", sound_welcome, set_in_result<at_flags, uint8_t, 3>},
    {"not_the_last_tile", sound_welcome, set_in_result<at_flags, uint8_t, 0>},
    {"reserved", sound_welcome, set_in_result<at_reserved, uint16_t, 1>},
    {"request_unknown", sound_welcome, set_in_result<at_request, uint64_t, UINT64_MAX - 7>},
    {"attempt_unknown", sound_welcome, set_in_result<at_attempt, uint16_t, 99>},
    {"slice", sound_welcome, set_in_result<at_slice, uint8_t, 8>},
    {"layer", sound_welcome, set_in_result<at_layer, uint32_t, most>},
    {"rows_zero", sound_welcome, set_in_result<at_rows, uint32_t, 0>},
    {"rows_over_a_tile", sound_welcome, set_in_result<at_rows, uint32_t, 65>},
    {"rows_largest", sound_welcome, set_in_result<at_rows, uint32_t, most>},
    {"row_offset", sound_welcome, set_in_result<at_row_offset, uint32_t, 1>},
    {"row_offset_largest", sound_welcome, set_in_result<at_row_offset, uint32_t, most>},
    {"length_largest", sound_welcome, set_in_result<at_length, uint32_t, most>},
    {"checksum", sound_welcome,
     [](const Bytes& r, Header) {
         Bytes broken = r;
         broken[at_checksum] ^= 1;
         return broken;
     }},
    {"width_zero", sound_welcome, set_in_result<f + 8, uint32_t, 0>},
    {"width_less", sound_welcome, set_in_result<f + 8, uint32_t, 4>},
    {"width_largest", sound_welcome, set_in_result<f + 8, uint32_t, most>},
    {"payload_reserved", sound_welcome, set_in_result<f + 12, uint32_t, 1>},
    {"payload_empty", sound_welcome, [](const Bytes& r, Header) { return with_payload_size(r, 0); }},
    {"payload_short", sound_welcome, [](const Bytes& r, Header) { return shorter(r); }},
    {"payload_long", sound_welcome, [](const Bytes& r, Header) { return longer(r, 4); }},
    {"payload_over_the_cap", sound_welcome, [](const Bytes& r, Header) { return longer(r, 17 << 20); }},
    {"a_row_more_than_asked", sound_welcome,
     [](const Bytes& r, Header) { return with<uint32_t>(longer(r, n_out * sizeof(float)), at_rows, 5); }},
    {"a_row_less_than_asked", sound_welcome,
     [](const Bytes& r, Header) { return with<uint32_t>(shorter(r, n_out * sizeof(float)), at_rows, 3); }},
    {"not_a_number", sound_welcome, set_in_result<f + 16, uint32_t, 0x7fc00000>},
    {"infinite", sound_welcome, set_in_result<f + 20, uint32_t, 0xff800000>},
    {"refuse_code_zero", sound_welcome,
     [](const Bytes&, Header h) { return with<uint16_t>(wire::encode(h, wire::Refuse{}), f, 0); }},
    {"refuse_code_unknown", sound_welcome,
     [](const Bytes&, Header h) { return with<uint16_t>(wire::encode(h, wire::Refuse{}), f, 11); }},
    {"refuse_message_longer_than_the_frame", sound_welcome,
     [](const Bytes&, Header h) { return with<uint16_t>(wire::encode(h, wire::Refuse{}), f + 2, 5); }},
    {"refuse_not_allowed", sound_welcome,
     [](const Bytes&, Header h) {
         return wire::encode(h, wire::Refuse{RefuseCode::not_allowed, "no"});
     }},
    {"refuse_failed", sound_welcome,
     [](const Bytes&, Header h) {
         return wire::encode(h, wire::Refuse{RefuseCode::failed, "broken"});
     }},
    {"credit_short", sound_welcome, [](const Bytes&, Header) { return shorter(wire::encode(wire::Credit{})); }},
    {"pong_battery", sound_welcome,
     [](const Bytes&, Header) { return with<uint8_t>(wire::encode(wire::Pong{}), f + 20, 200); }},
    {"ping_long", sound_welcome, [](const Bytes&, Header) { return longer(wire::encode(wire::Ping{})); }},
    {"goaway_short", sound_welcome, [](const Bytes&, Header) { return shorter(wire::encode(wire::GoAway{})); }},
    {"welcome_again", sound_welcome,
     [](const Bytes&, Header) { return wire::encode(wire::Welcome{.max_payload = 4096}); }},
    {"compute_from_a_worker", sound_welcome,
     [](const Bytes&, Header h) {
         return wire::encode(
             h, wire::Compute{.n_x = 1, .n_in = 1, .n_rows_out = 1, .x_row = {0}, .expert = {0}, .x = {0}});
     }},
};

const auto by_name = [](const testing::TestParamInfo<Attack>& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Welcome, HostileWorker, testing::ValuesIn(welcomes), by_name);
INSTANTIATE_TEST_SUITE_P(Answer, HostileWorker, testing::ValuesIn(answers), by_name);

}  // namespace
}  // namespace linkcpp
