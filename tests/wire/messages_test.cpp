// Decoders against wrong content: frames that are sound (their checksum is right) and say something impossible.
#include "wire/samples.h"

#include <gtest/gtest.h>
#include <limits>

namespace linkcpp::wire::test {
namespace {

Bytes payload_of(const Bytes& frame) { return Bytes(frame.begin() + header_bytes, frame.end()); }

Frame frame_of(FrameType type, const Bytes& payload, uint32_t rows = 0) {
    return {{.type = type, .rows = rows}, payload};
}

template <typename T>
Bytes changed(Bytes payload, size_t offset, T value) {
    to_little_endian(value, payload.data() + offset);
    return payload;
}

/// Every shorter payload, and one that is longer, must be refused.
template <typename Decode>
void refuses_other_lengths(Decode decode, FrameType type, const Bytes& payload, uint32_t rows = 0) {
    for (size_t size = 0; size < payload.size(); ++size) {
        const Bytes part(payload.begin(), payload.begin() + static_cast<ptrdiff_t>(size));
        EXPECT_FALSE(decode(frame_of(type, part, rows)).ok()) << frame_type_name(type) << " of " << size;
    }
    Bytes longer = payload;
    longer.push_back(0);
    EXPECT_FALSE(decode(frame_of(type, longer, rows)).ok()) << frame_type_name(type) << " longer";
    EXPECT_TRUE(decode(frame_of(type, payload, rows)).ok()) << frame_type_name(type);
}

TEST(Messages, every_other_length_is_refused) {
    refuses_other_lengths(decode_hello, FrameType::hello, payload_of(encode(sample_hello())));
    refuses_other_lengths(decode_welcome, FrameType::welcome, payload_of(encode(sample_welcome())));
    refuses_other_lengths(decode_program_frame, FrameType::program, payload_of(encode({}, sample_program())));
    refuses_other_lengths(decode_compute, FrameType::compute, payload_of(encode({}, sample_rows())), 3);
    refuses_other_lengths(decode_compute, FrameType::compute, payload_of(encode({}, sample_sums())), 2);
    refuses_other_lengths(decode_result, FrameType::result, payload_of(sample_result()), 2);
    refuses_other_lengths(decode_refuse, FrameType::refuse, payload_of(encode({}, sample_refuse())));
    refuses_other_lengths(decode_credit, FrameType::credit, payload_of(encode(Credit{1})));
    refuses_other_lengths(decode_ping, FrameType::ping, payload_of(encode(Ping{1})));
    refuses_other_lengths(decode_pong, FrameType::pong, payload_of(encode(sample_pong())));
    refuses_other_lengths(decode_goaway, FrameType::goaway, payload_of(encode(sample_goaway())));
}

TEST(Messages, hello_limits) {
    const Bytes payload = payload_of(encode(sample_hello()));
    const auto ok = [](const Bytes& bytes) { return decode_hello(frame_of(FrameType::hello, bytes)).ok(); };
    EXPECT_FALSE(ok(changed<uint16_t>(payload, 0, 0)));
    EXPECT_FALSE(ok(changed<uint16_t>(payload, 0, 3)));
    EXPECT_FALSE(ok(changed<uint32_t>(payload, 4, max_handshake_payload - 1)));
    EXPECT_FALSE(ok(changed<uint32_t>(payload, 4, max_payload_limit + 1)));
    EXPECT_TRUE(ok(changed<uint32_t>(payload, 4, max_payload_limit)));
    Hello longest = sample_hello();
    longest.build.assign(max_build_bytes + 10, 'b');
    longest.numeric_class.assign(max_numeric_class_bytes, 'c');
    longest.identity.assign(max_identity_bytes, 'i');
    auto decoded = decode_hello(frame_of(FrameType::hello, payload_of(encode(longest))));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->build.size(), max_build_bytes);
    EXPECT_EQ(decoded->numeric_class, longest.numeric_class);
    // Half a class would be another class.
    longest.numeric_class += 'c';
    EXPECT_EQ(decode_hello(frame_of(FrameType::hello, payload_of(encode(longest))))->numeric_class, "");
}

TEST(Messages, the_largest_welcome_is_a_handshake_frame) {
    Welcome welcome = sample_welcome();
    welcome.build.assign(max_build_bytes, 'b');
    welcome.numeric_class.assign(max_numeric_class_bytes, 'c');
    welcome.identity.assign(max_identity_bytes, 'i');
    welcome.slices.assign(max_slices_offered, sample_welcome().slices[0]);
    const Bytes payload = payload_of(encode(welcome));
    EXPECT_LE(payload.size(), max_handshake_payload);
    auto decoded = decode_welcome(frame_of(FrameType::welcome, payload));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, welcome);
}

TEST(Messages, welcome_offers_are_possible) {
    const Bytes payload = payload_of(encode(sample_welcome()));
    const size_t offer = payload.size() - 16;
    const auto ok = [](const Bytes& bytes) { return decode_welcome(frame_of(FrameType::welcome, bytes)).ok(); };
    EXPECT_FALSE(ok(changed<uint32_t>(payload, offer, 5)));
    EXPECT_FALSE(ok(changed<uint32_t>(payload, offer + 4, max_layers + 1)));
    EXPECT_FALSE(ok(changed<uint32_t>(payload, offer + 8, 16)));
    EXPECT_FALSE(ok(changed<uint32_t>(payload, offer + 12, max_experts + 1)));
    EXPECT_FALSE(ok(changed<uint16_t>(payload, payload.size() - 34, 97)));
}

TEST(Messages, program_limits) {
    const auto ok = [](ProgramFrame program) {
        return decode_program_frame(frame_of(FrameType::program, payload_of(encode({}, program)))).ok();
    };
    ProgramFrame program = sample_program();
    program.code.assign(max_program_code, 1);
    EXPECT_TRUE(ok(program));
    program.code.push_back(1);
    EXPECT_FALSE(ok(program));
    program.code.clear();
    EXPECT_FALSE(ok(program));
    program = sample_program();
    program.layer_end = program.layer_begin;
    EXPECT_FALSE(ok(program));
    program.layer_end = max_layers + 1;
    EXPECT_FALSE(ok(program));
}

bool compute_ok(const Bytes& payload, uint32_t rows) {
    return decode_compute(frame_of(FrameType::compute, payload, rows)).ok();
}

TEST(Messages, compute_counts_must_fit_the_payload) {
    const Bytes payload = payload_of(encode({}, sample_rows()));
    for (size_t offset : {8, 12, 16}) {
        for (uint32_t count : {0u, 1u, 100u, 0x7fffffffu, 0xffffffffu}) {
            EXPECT_FALSE(compute_ok(changed(payload, offset, count), 3)) << offset << " " << count;
        }
    }
    // All counts huge at once: the sizes overflow 64 bits.
    Bytes huge = payload;
    for (size_t offset : {8, 12, 16, 20})
        huge = changed(huge, offset, 0xffffffffu);
    EXPECT_FALSE(compute_ok(huge, 0xffffffffu));
    EXPECT_FALSE(compute_ok(payload, 2));
    EXPECT_FALSE(compute_ok(changed<uint8_t>(payload, 4, 2), 3));
    EXPECT_FALSE(compute_ok(changed<uint8_t>(payload, 5, 1), 3)) << "weights without sums";
    EXPECT_FALSE(compute_ok(changed<uint8_t>(payload, 5, 2), 3));
    EXPECT_FALSE(compute_ok(changed<uint16_t>(payload, 6, 1), 3));
}

TEST(Messages, compute_rows_checks_its_indices) {
    Compute compute = sample_rows();
    compute.x_row[2] = 2;
    EXPECT_FALSE(compute_ok(payload_of(encode({}, compute)), 3));
    compute = sample_rows();
    compute.n_rows_out = 2;
    EXPECT_FALSE(compute_ok(payload_of(encode({}, compute)), 2));
}

TEST(Messages, compute_sums_checks_its_groups) {
    const auto ok = [](std::vector<uint32_t> group, uint32_t n_rows_out) {
        Compute compute = sample_sums();
        compute.group = std::move(group);
        compute.n_rows_out = n_rows_out;
        return compute_ok(payload_of(encode({}, compute)), n_rows_out);
    };
    EXPECT_TRUE(ok({0, 0, 0}, 1));
    EXPECT_TRUE(ok({0, 1, 2}, 3));
    EXPECT_FALSE(ok({0, 1, 0}, 2)) << "decreasing";
    EXPECT_FALSE(ok({0, 2, 2}, 3)) << "one is missing";
    EXPECT_FALSE(ok({1, 1, 1}, 2)) << "the first is missing";
    EXPECT_FALSE(ok({0, 0, 1}, 3)) << "the last is missing";
    EXPECT_FALSE(ok({0, 0, 1}, 1)) << "one too many";
    EXPECT_FALSE(ok({0, 0, 0xffffffff}, 0));
}

TEST(Messages, compute_without_weights_and_any_bits_pass_through) {
    Compute compute = sample_sums();
    compute.weight.clear();
    compute.x = {std::numeric_limits<float>::infinity(), -0.0f};
    auto decoded = decode_compute(frame_of(FrameType::compute, payload_of(encode({}, compute)), 2));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(*decoded, compute);
    compute.x[0] = from_little_endian<float>(Bytes{1, 0, 0xa0, 0x7f}.data());  // a signalling NaN with a payload
    const Bytes payload = payload_of(encode({}, compute));
    EXPECT_EQ(payload_of(encode({}, *decode_compute(frame_of(FrameType::compute, payload, 2)))), payload);
}

TEST(Messages, sizes_for_caps_and_credit_are_those_of_the_encoder) {
    EXPECT_EQ(compute_payload_bytes(Output::rows, 2, 2, 3, false), payload_of(encode({}, sample_rows())).size());
    EXPECT_EQ(compute_payload_bytes(Output::sums, 1, 2, 3, true), payload_of(encode({}, sample_sums())).size());
    EXPECT_EQ(result_payload_bytes(2, 2), payload_of(sample_result()).size());
    EXPECT_EQ(compute_payload_bytes(Output::rows, UINT64_MAX, UINT64_MAX, UINT64_MAX, false), UINT64_MAX);
}

TEST(Messages, result_limits) {
    const std::vector<float> rows(max_tile_rows * 3, 1.0f);
    const Bytes payload = payload_of(encode_result({}, 0, 0, 3, rows));
    EXPECT_TRUE(decode_result(frame_of(FrameType::result, payload, max_tile_rows)).ok());
    EXPECT_FALSE(decode_result(frame_of(FrameType::result, payload, max_tile_rows - 1)).ok());
    EXPECT_FALSE(decode_result(frame_of(FrameType::result, payload, 0)).ok());
    // 192 rows of one: the same bytes, but more rows than a tile has.
    EXPECT_FALSE(decode_result(frame_of(FrameType::result, changed<uint32_t>(payload, 8, 1), 192)).ok());
    EXPECT_FALSE(decode_result(frame_of(FrameType::result, changed<uint32_t>(payload, 12, 1), max_tile_rows)).ok());
    Frame late = frame_of(FrameType::result, payload, max_tile_rows);
    late.header.row_offset = UINT32_MAX - max_tile_rows + 1;
    EXPECT_FALSE(decode_result(late).ok());
}

TEST(Messages, refusals_and_farewells) {
    Refuse refuse{RefuseCode::busy, std::string(5000, 'x')};
    auto decoded = decode_refuse(frame_of(FrameType::refuse, payload_of(encode({}, refuse))));
    ASSERT_TRUE(decoded.ok());
    EXPECT_EQ(decoded->message.size(), max_message_bytes);
    const Bytes payload = payload_of(encode({}, sample_refuse()));
    EXPECT_FALSE(decode_refuse(frame_of(FrameType::refuse, changed<uint16_t>(payload, 0, 0))).ok());
    EXPECT_FALSE(decode_refuse(frame_of(FrameType::refuse, changed<uint16_t>(payload, 0, 11))).ok());
    // A GOAWAY must be understood by all versions, also one whose reason is new.
    auto goaway = decode_goaway(frame_of(FrameType::goaway, changed<uint16_t>(payload, 0, 999)));
    ASSERT_TRUE(goaway.ok());
    EXPECT_EQ(goaway->reason, RefuseCode::failed);
}

TEST(Messages, pong_limits) {
    const Bytes payload = payload_of(encode(sample_pong()));
    const auto ok = [](const Bytes& bytes) { return decode_pong(frame_of(FrameType::pong, bytes)).ok(); };
    EXPECT_FALSE(ok(changed<uint8_t>(payload, 20, 101)));
    EXPECT_TRUE(ok(changed<uint8_t>(payload, 20, 255)));
    EXPECT_FALSE(ok(changed<uint16_t>(payload, 22, 1)));
}

}  // namespace
}  // namespace linkcpp::wire::test
