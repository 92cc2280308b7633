// Every field of every frame that a backbone can send, set to what makes no sense: the worker ends that connection, refuses
// that request or does not mind, and serves others as before.
#include "wire/forge.h"
#include "worker/server_fixture.h"

#include <limits>

namespace linkcpp::worker {
namespace {

using wire::FrameHeader;
using wire::FrameType;
using namespace wire::test;

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN(), infinite = std::numeric_limits<float>::infinity();
constexpr uint32_t most = UINT32_MAX;

enum class Outcome { ends, refused, served, accepted };

struct Attack {
    const char* name;
    Bytes frame;
    Outcome outcome;
    RefuseCode code = RefuseCode::malformed;
};
// Names of the test's report, not bytes.
void PrintTo(const Attack& attack, std::ostream* out) { *out << attack.name; }

FrameHeader request_header() {
    FrameHeader header;
    header.request = 50;
    header.slice = {1, 2, 3};
    header.layer = 2;
    return header;
}
Bytes rows_frame() {
    return wire::encode(request_header(), wire::Compute{.program = 1,
                                                        .n_x = 2,
                                                        .n_in = 3,
                                                        .n_rows_out = 2,
                                                        .x_row = {0, 1},
                                                        .expert = {0, 1},
                                                        .x = {0, 1, 0.5f, 1, 1, 0.5f}});
}
Bytes sums_frame() {
    return wire::encode(request_header(), wire::Compute{.program = 1,
                                                        .output = wire::Output::sums,
                                                        .n_x = 2,
                                                        .n_in = 3,
                                                        .n_rows_out = 2,
                                                        .x_row = {0, 1, 1},
                                                        .expert = {0, 1, 2},
                                                        .group = {0, 1, 1},
                                                        .weight = {1, 2, 3},
                                                        .x = {0, 1, 0.5f, 1, 1, 0.5f}});
}
Bytes program_frame(const Bytes& code = encode_program(test::simple_program())) {
    return wire::encode(request_header(), wire::ProgramFrame{2, 2, 4, code});
}
Bytes hello_frame() { return wire::encode(wire::Hello{.max_payload = 1 << 20, .credit = 1 << 20, .build = "b"}); }
/// The code of simple_program(), which is 8 bytes and 3 steps of 12, with one byte changed.
Bytes code_with(size_t offset, uint8_t value) {
    Bytes code = encode_program(test::simple_program());
    code[offset] = value;
    return program_frame(code);
}

// Offsets in payloads.
constexpr size_t c = at_payload, p = at_payload, h = at_payload;

std::vector<Attack> header_attacks() {
    const Bytes rows = rows_frame();
    Bytes bad_checksum = rows;
    bad_checksum[at_checksum] ^= 1;
    Bytes shifted = rows;
    to_little_endian<uint32_t>(static_cast<uint32_t>(rows.size() - wire::header_bytes - 1), shifted.data() + at_length);
    return {
        {"magic", with<uint8_t>(rows, 0, 'X'), Outcome::ends},
        {"version_zero", with<uint16_t>(rows, at_version, 0), Outcome::ends, RefuseCode::version},
        {"version_newer", with<uint16_t>(rows, at_version, 2), Outcome::ends, RefuseCode::version},
        {"type_zero", with<uint8_t>(rows, at_type, 0), Outcome::ends},
        {"type_unknown", with<uint8_t>(rows, at_type, 11), Outcome::ends},
        {"type_largest", with<uint8_t>(rows, at_type, 255), Outcome::ends},
        {"hello_again", hello_frame(), Outcome::ends},
        {"welcome_from_a_backbone", wire::encode(wire::Welcome{.max_payload = 4096}), Outcome::ends},
        {"result_from_a_backbone", wire::encode_result(request_header(), 0, 0, 1, std::vector<float>{1}),
         Outcome::ends},
        {"refuse_from_a_backbone", wire::encode(request_header(), wire::Refuse{}), Outcome::ends},
        {"flag_of_another_type", with<uint8_t>(rows, at_flags, 1), Outcome::ends},
        {"flags_reserved", with<uint8_t>(rows, at_flags, 0x80), Outcome::ends},
        {"reserved_bytes", with<uint16_t>(rows, at_reserved, 1), Outcome::ends},
        {"length_over_the_cap", with<uint32_t>(rows, at_length, 1u << 30), Outcome::ends},
        {"length_largest", with<uint32_t>(rows, at_length, most), Outcome::ends},
        {"length_too_short", with_checksum(shifted), Outcome::ends},
        {"checksum", bad_checksum, Outcome::ends},
        {"slice_unknown", with<uint8_t>(rows, at_slice, 9), Outcome::refused, RefuseCode::unknown_slice},
        {"slice_zero", with<uint32_t>(rows, at_slice, 0), Outcome::refused, RefuseCode::unknown_slice},
        {"layer_before", with<uint32_t>(rows, at_layer, 1), Outcome::refused, RefuseCode::unknown_slice},
        {"layer_after", with<uint32_t>(rows, at_layer, 4), Outcome::refused, RefuseCode::unknown_slice},
        {"layer_largest", with<uint32_t>(rows, at_layer, most), Outcome::refused, RefuseCode::unknown_slice},
        {"rows_zero", with<uint32_t>(rows, at_rows, 0), Outcome::refused},
        {"rows_more", with<uint32_t>(rows, at_rows, 3), Outcome::refused},
        {"rows_largest", with<uint32_t>(rows, at_rows, most), Outcome::refused},
        {"row_offset_is_ignored", with<uint32_t>(rows, at_row_offset, most), Outcome::served},
        {"attempt_largest_is_sound", with<uint16_t>(rows, at_attempt, UINT16_MAX), Outcome::served},
        {"time_largest_is_sound", with<uint32_t>(rows, at_time, most), Outcome::served},
    };
}

std::vector<Attack> compute_attacks() {
    const Bytes rows = rows_frame(), sums = sums_frame();
    Bytes all_huge = rows;
    for (size_t field : {c + 8, c + 12, c + 16, c + 20, at_rows})
        all_huge = with<uint32_t>(all_huge, field, most);
    return {
        {"empty", with_payload_size(rows, 0), Outcome::refused},
        {"fixed_part_cut", with_payload_size(rows, 23), Outcome::refused},
        {"one_byte_short", shorter(rows), Outcome::refused},
        {"one_number_short", shorter(rows, 4), Outcome::refused},
        {"one_byte_long", longer(rows), Outcome::refused},
        {"one_row_long", longer(rows, 12), Outcome::refused},
        {"program_unknown", with<uint32_t>(rows, c, 99), Outcome::refused, RefuseCode::unknown_program},
        {"program_largest", with<uint32_t>(rows, c, most), Outcome::refused, RefuseCode::unknown_program},
        {"output_unknown", with<uint8_t>(rows, c + 4, 2), Outcome::refused},
        {"weights_for_rows", with<uint8_t>(rows, c + 5, 1), Outcome::refused},
        {"bits_reserved", with<uint8_t>(rows, c + 5, 2), Outcome::refused},
        {"reserved", with<uint16_t>(rows, c + 6, 1), Outcome::refused},
        {"n_x_zero", with<uint32_t>(rows, c + 8, 0), Outcome::refused},
        {"n_x_less", with<uint32_t>(rows, c + 8, 1), Outcome::refused},
        {"n_x_largest", with<uint32_t>(rows, c + 8, most), Outcome::refused},
        {"n_in_zero", with<uint32_t>(rows, c + 12, 0), Outcome::refused},
        {"n_in_largest", with<uint32_t>(rows, c + 12, most), Outcome::refused},
        {"n_in_of_another_model", with<uint32_t>(with<uint32_t>(rows, c + 8, 3), c + 12, 2), Outcome::refused},
        {"n_pairs_zero", with<uint32_t>(rows, c + 16, 0), Outcome::refused},
        {"n_pairs_less", with<uint32_t>(rows, c + 16, 1), Outcome::refused},
        {"n_pairs_largest", with<uint32_t>(rows, c + 16, most), Outcome::refused},
        {"rows_out_zero", with<uint32_t>(with<uint32_t>(rows, c + 20, 0), at_rows, 0), Outcome::refused},
        {"rows_out_largest", with<uint32_t>(with<uint32_t>(rows, c + 20, most), at_rows, most), Outcome::refused},
        {"all_counts_largest", all_huge, Outcome::refused},
        {"activation_row_out_of_range", with<uint32_t>(rows, c + 24, 2), Outcome::refused},
        {"activation_row_largest", with<uint32_t>(rows, c + 28, most), Outcome::refused},
        {"expert_out_of_range", with<uint32_t>(rows, c + 32, 4), Outcome::refused},
        {"expert_largest", with<uint32_t>(rows, c + 36, most), Outcome::refused},
        {"the_same_pair_twice_is_sound", with<uint32_t>(with<uint32_t>(rows, c + 28, 0), c + 36, 0), Outcome::served},
        {"activation_nan_is_computed", with<float>(rows, c + 40, nan_value), Outcome::served},
        {"activation_infinite_is_computed", with<float>(rows, c + 40, -infinite), Outcome::served},
        {"sums_one_short", shorter(sums), Outcome::refused},
        {"sums_without_their_weights", with<uint8_t>(sums, c + 5, 0), Outcome::refused},
        {"group_does_not_begin_at_zero", with<uint32_t>(sums, c + 48, 1), Outcome::refused},
        {"group_decreases", with<uint32_t>(sums, c + 56, 0), Outcome::refused},
        {"group_missing", with<uint32_t>(sums, c + 56, 3), Outcome::refused},
        {"group_largest", with<uint32_t>(sums, c + 56, most), Outcome::refused},
        {"fewer_rows_than_groups", with<uint32_t>(with<uint32_t>(sums, c + 20, 1), at_rows, 1), Outcome::refused},
        {"weight_nan_is_computed", with<float>(sums, c + 60, nan_value), Outcome::served},
        {"weight_infinite_is_computed", with<float>(sums, c + 60, infinite), Outcome::served},
    };
}

std::vector<Attack> program_attacks() {
    const Bytes program = program_frame();
    Bytes many_steps = encode_program(test::simple_program());
    many_steps.resize(8 + 65 * 12, 0);
    many_steps[6] = 65;
    Bytes cut_code = encode_program(test::simple_program());
    cut_code.pop_back();
    Bytes nan_parameter = encode_program(test::simple_program());
    to_little_endian(nan_value, nan_parameter.data() + 12);
    return {
        {"empty", with_payload_size(program, 0), Outcome::refused},
        {"fixed_part_cut", with_payload_size(program, 15), Outcome::refused},
        {"one_byte_short", shorter(program), Outcome::refused},
        {"one_byte_long", longer(program), Outcome::refused},
        {"number_largest_is_sound", with<uint32_t>(program, p, most), Outcome::accepted},
        {"slice_unknown", with<uint8_t>(program, at_slice, 9), Outcome::refused, RefuseCode::unknown_slice},
        {"no_layers", with<uint32_t>(program, p + 4, 4), Outcome::refused},
        {"layers_backwards", with<uint32_t>(program, p + 4, 5), Outcome::refused},
        {"layer_end_largest", with<uint32_t>(program, p + 8, most), Outcome::refused},
        {"layers_of_others", with<uint32_t>(with<uint32_t>(program, p + 4, 8), p + 8, 9), Outcome::refused,
         RefuseCode::unknown_slice},
        {"code_size_zero", with_payload_size(with<uint32_t>(program, p + 12, 0), 16), Outcome::refused},
        {"code_size_largest", with<uint32_t>(program, p + 12, most), Outcome::refused},
        {"code_over_the_cap", program_frame(Bytes(4097, 1)), Outcome::refused},
        {"code_that_is_none", program_frame(Bytes(100, 'x')), Outcome::refused},
        {"code_one_byte_short", program_frame(cut_code), Outcome::refused},
        {"code_magic", code_with(0, 'X'), Outcome::refused},
        {"code_format_newer", code_with(4, 2), Outcome::refused, RefuseCode::unsupported},
        {"code_flags_reserved", code_with(5, 2), Outcome::refused},
        {"code_without_steps", code_with(6, 0), Outcome::refused},
        {"code_with_fewer_steps_than_bytes", code_with(6, 2), Outcome::refused},
        {"code_with_more_steps_than_bytes", code_with(6, 4), Outcome::refused},
        {"code_with_too_many_steps", program_frame(many_steps), Outcome::refused},
        {"step_operation_zero", code_with(8, 0), Outcome::refused},
        {"step_operation_unknown", code_with(8, 255), Outcome::refused},
        {"step_matrix_unknown", code_with(9, 4), Outcome::refused},
        {"step_matrix_not_held", code_with(9, 1), Outcome::refused, RefuseCode::unsupported},
        {"step_operand_a_from_the_future", code_with(10, 1), Outcome::refused},
        {"step_operand_a_largest", code_with(10, 255), Outcome::refused},
        {"step_operand_b_where_none_is", code_with(11, 1), Outcome::refused},
        {"step_parameter_where_none_is", code_with(12, 1), Outcome::refused},
        {"step_parameter_negative_zero", code_with(15, 0x80), Outcome::refused},
        {"step_parameter_nan", program_frame(nan_parameter), Outcome::refused},
        {"step_widths_do_not_fit", code_with(8 + 24 + 1, 0), Outcome::refused},
        {"step_on_the_input_row", code_with(8 + 12 + 2, 0), Outcome::refused},
    };
}

std::vector<Attack> other_attacks() {
    const Bytes credit = wire::encode(wire::Credit{1}), ping = wire::encode(wire::Ping{1}),
                pong = wire::encode(wire::Pong{}), goaway = wire::encode(wire::GoAway{});
    Bytes long_message(2, 0);
    long_message.insert(long_message.end(), {0xe9, 0x03});  // 1001 bytes
    long_message.resize(4 + 1001, 'm');
    return {
        {"credit_short", shorter(credit), Outcome::ends},
        {"credit_long", longer(credit), Outcome::ends},
        {"credit_empty", with_payload_size(credit, 0), Outcome::ends},
        {"credit_zero_is_sound", with<uint64_t>(credit, at_payload, 0), Outcome::accepted},
        {"credit_largest_is_sound", with<uint64_t>(credit, at_payload, UINT64_MAX), Outcome::accepted},
        {"ping_short", shorter(ping), Outcome::ends},
        {"ping_long", longer(ping), Outcome::ends},
        {"pong_short", shorter(pong), Outcome::ends},
        {"pong_long", longer(pong), Outcome::ends},
        {"pong_battery", with<uint8_t>(pong, at_payload + 20, 101), Outcome::ends},
        {"pong_reserved", with<uint16_t>(pong, at_payload + 22, 1), Outcome::ends},
        {"pong_nobody_asked_for", pong, Outcome::accepted},
        {"goaway_short", shorter(goaway), Outcome::ends},
        {"goaway_long", longer(goaway), Outcome::ends},
        {"goaway_message_longer_than_the_frame", with<uint16_t>(goaway, at_payload + 2, 9), Outcome::ends},
        {"goaway_message_too_long", frame_of(FrameType::goaway, long_message), Outcome::ends},
        {"goaway_reason_unknown_is_sound", with<uint16_t>(goaway, at_payload, 999), Outcome::accepted},
    };
}

std::vector<Attack> hello_attacks() {
    const Bytes hello = hello_frame();
    return {
        {"oldest_version_zero", with<uint16_t>(hello, h, 0), Outcome::ends},
        {"versions_backwards", with<uint16_t>(hello, h, 2), Outcome::ends},
        {"versions_too_new", with<uint16_t>(with<uint16_t>(hello, h, 7), h + 2, 9), Outcome::ends, RefuseCode::version},
        {"cap_zero", with<uint32_t>(hello, h + 4, 0), Outcome::ends},
        {"cap_below_a_handshake", with<uint32_t>(hello, h + 4, 4095), Outcome::ends},
        {"cap_over_the_limit", with<uint32_t>(hello, h + 4, (1u << 30) + 1), Outcome::ends},
        {"cap_largest", with<uint32_t>(hello, h + 4, most), Outcome::ends},
        {"build_too_long", with_strings(hello, 16, 129, 0, 0), Outcome::ends},
        {"class_too_long", with_strings(hello, 16, 0, 513, 0), Outcome::ends},
        {"identity_too_long", with_strings(hello, 16, 0, 0, 353), Outcome::ends},
        {"string_longer_than_the_frame", with<uint16_t>(hello, h + 16, UINT16_MAX), Outcome::ends},
        {"one_byte_short", shorter(hello), Outcome::ends},
        {"one_byte_long", longer(hello), Outcome::ends},
        {"empty", with_payload_size(hello, 0), Outcome::ends},
        {"over_the_handshake_cap", with_payload_size(hello, 4097), Outcome::ends},
        {"compute_instead", rows_frame(), Outcome::ends},
        {"program_instead", program_frame(), Outcome::ends},
        {"ping_instead", wire::encode(wire::Ping{}), Outcome::ends},
        {"credit_instead", wire::encode(wire::Credit{}), Outcome::ends},
    };
}

class HostileBackbone : public ServerTest, public testing::WithParamInterface<Attack> {
  protected:
    void attack(bool greeted) {
        start();
        auto good = connect(), bad = connect(greeted);
        bad->link->send(GetParam().frame);
        // What follows it shows whether the end of the frame was found.
        if (greeted) bad->link->send(wire::encode(wire::Ping{77}));
        run(100ms);
        const auto& answer = bad->answers[50];
        EXPECT_EQ(bad->closed, GetParam().outcome == Outcome::ends);
        EXPECT_EQ(answer.refused.has_value(), GetParam().outcome == Outcome::refused);
        EXPECT_EQ(answer.complete, GetParam().outcome == Outcome::served);
        if (GetParam().outcome == Outcome::ends) {
            ASSERT_TRUE(bad->goaway.has_value());
            EXPECT_EQ(bad->goaway->reason, GetParam().code);
        } else {
            ASSERT_EQ(bad->pongs.size(), 1u);
            expect_alive(*bad);
        }
        if (answer.refused) {
            EXPECT_EQ(answer.refused->code, GetParam().code) << answer.refused->message;
        }
        EXPECT_EQ(server->pairs_waiting(), 0u);
        EXPECT_FALSE(good->closed);
        expect_alive(*good, 1000);
    }
};
class HostileHandshake : public HostileBackbone {};

TEST_P(HostileBackbone, HarmsNobody) { attack(true); }
TEST_P(HostileHandshake, HarmsNobody) { attack(false); }

const auto by_name = [](const testing::TestParamInfo<Attack>& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Header, HostileBackbone, testing::ValuesIn(header_attacks()), by_name);
INSTANTIATE_TEST_SUITE_P(Compute, HostileBackbone, testing::ValuesIn(compute_attacks()), by_name);
INSTANTIATE_TEST_SUITE_P(Program, HostileBackbone, testing::ValuesIn(program_attacks()), by_name);
INSTANTIATE_TEST_SUITE_P(Others, HostileBackbone, testing::ValuesIn(other_attacks()), by_name);
INSTANTIATE_TEST_SUITE_P(Hello, HostileHandshake, testing::ValuesIn(hello_attacks()), by_name);

}  // namespace
}  // namespace linkcpp::worker
