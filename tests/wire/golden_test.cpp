// The bytes of docs/PROTOCOL.md, frame by frame. If one of these tests fails, the protocol has changed: that needs a new
// version number, not a new golden value.
#include "wire/samples.h"

#include <cctype>
#include <gtest/gtest.h>

namespace linkcpp::wire::test {
namespace {

/// Hexadecimal digits to bytes; everything else is for the eye.
Bytes from_hex(const char* text) {
    Bytes bytes;
    int high = -1;
    for (; *text; ++text) {
        if (!std::isxdigit(static_cast<unsigned char>(*text))) continue;
        const int digit =
            std::isdigit(static_cast<unsigned char>(*text)) ? *text - '0' : std::tolower(*text) - 'a' + 10;
        if (high < 0) {
            high = digit;
        } else {
            bytes.push_back(static_cast<uint8_t>(high * 16 + digit));
            high = -1;
        }
    }
    return bytes;
}

std::string to_hex(const Bytes& bytes) {
    std::string text;
    for (size_t i = 0; i < bytes.size(); ++i) {
        char two[4];
        snprintf(two, sizeof(two), "%02x", bytes[i]);
        text += two;
        text += i % 16 == 15 ? "\n" : " ";
    }
    return text;
}

Frame parse(FrameReader& reader, const Bytes& bytes) {
    reader.set_max_payload(1 << 20);
    reader.feed(bytes);
    auto frame = reader.next();
    EXPECT_TRUE(frame.ok() && frame->has_value()) << frame.status().message();
    return frame.ok() && frame->has_value() ? **frame : Frame{};
}

TEST(Golden, hello) {
    const Bytes golden = from_hex("4c435050 0100 01 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 22000000 e7f25ebc974f484a"
                                  "0100 0200 00001000 0000200000000000 0200 6231 0800 4350553a41565832 0200 6d65");
    EXPECT_EQ(to_hex(encode(sample_hello())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_hello(parse(reader, golden)), sample_hello());
}

TEST(Golden, welcome) {
    const Bytes golden = from_hex("4c435050 0100 02 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 3a000000 c99af3b03d93e845"
                                  "0100 00003000 0000400000000000 0100 77 0300 435055 0000 0100"
                                  "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf 03000000 05000000 08000000 10000000");
    EXPECT_EQ(to_hex(encode(sample_welcome())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_welcome(parse(reader, golden)), sample_welcome());
}

TEST(Golden, program) {
    const Bytes golden = from_hex("4c435050 0100 03 00 8877665544332211 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                  "03000000 00000000 00000000 0200 0000 00000000 13000000 5ac8e8d6c34ce6d9"
                                  "07000000 03000000 05000000 03000000 010203");
    EXPECT_EQ(to_hex(encode(sample_header(), sample_program())), to_hex(golden));
    FrameReader reader;
    const Frame frame = parse(reader, golden);
    FrameHeader header = sample_header();
    header.type = FrameType::program;
    EXPECT_EQ(frame.header, header);
    EXPECT_EQ(*decode_program_frame(frame), sample_program());
}

TEST(Golden, compute_rows) {
    const Bytes golden = from_hex("4c435050 0100 04 00 8877665544332211 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                  "03000000 03000000 00000000 0200 0000 dc050000 40000000 a37e67cca719696a"
                                  "07000000 00 00 0000 02000000 02000000 03000000 03000000"
                                  "00000000 01000000 01000000 04000000 05000000 06000000"
                                  "0000803f 00000040 000080bf 0000003f");
    FrameHeader header = sample_header();
    header.time_allowed_ms = 1500;
    EXPECT_EQ(to_hex(encode(header, sample_rows())), to_hex(golden));
    const Compute rows = sample_rows();
    ComputeFrame by_rows(rows);
    for (size_t row = 0; row < 2; ++row)
        by_rows.add_rows(std::span(rows.x).subspan(2 * row, 2));
    EXPECT_EQ(by_rows.payload_bytes(), golden.size() - header_bytes);
    EXPECT_EQ(to_hex(std::move(by_rows).seal(header, rows.program)), to_hex(golden));
    FrameReader reader;
    const Frame frame = parse(reader, golden);
    header.type = FrameType::compute;
    header.rows = 3;
    EXPECT_EQ(frame.header, header);
    EXPECT_EQ(*decode_compute(frame), sample_rows());
}

TEST(Golden, compute_sums) {
    const Bytes golden = from_hex("4c435050 0100 04 00 8877665544332211 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                  "03000000 02000000 00000000 0200 0000 dc050000 50000000 6a707b2cdc30619d"
                                  "07000000 01 01 0000 01000000 02000000 03000000 02000000"
                                  "00000000 00000000 00000000 04000000 05000000 06000000"
                                  "00000000 00000000 01000000 0000803e 0000403f 0000803f 0000803f 00000040");
    FrameHeader header = sample_header();
    header.time_allowed_ms = 1500;
    EXPECT_EQ(to_hex(encode(header, sample_sums())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_compute(parse(reader, golden)), sample_sums());
}

TEST(Golden, result) {
    const Bytes golden = from_hex("4c435050 0100 05 01 8877665544332211 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                  "03000000 02000000 40000000 0200 0000 00000000 20000000 9372e3ad6a26b822"
                                  "0a000000 14000000 02000000 00000000 0000803f 00000040 00004040 00008040");
    EXPECT_EQ(to_hex(sample_result()), to_hex(golden));
    FrameReader reader;
    const Frame frame = parse(reader, golden);
    auto tile = decode_result(frame);
    ASSERT_TRUE(tile.ok());
    EXPECT_EQ(frame.header.flags, flag_last_tile);
    EXPECT_EQ(frame.header.row_offset, 64u);
    EXPECT_EQ(tile->queue_us, 10u);
    EXPECT_EQ(tile->compute_us, 20u);
    EXPECT_EQ(tile->n_out, 2u);
    EXPECT_EQ(Bytes(tile->rows.begin(), tile->rows.end()), Bytes(golden.end() - 16, golden.end()));
}

TEST(Golden, refuse) {
    const Bytes golden = from_hex("4c435050 0100 06 00 8877665544332211 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf"
                                  "03000000 00000000 00000000 0200 0000 00000000 08000000 aa66e59ec6c218f8"
                                  "0500 0400 6c617465");
    EXPECT_EQ(to_hex(encode(sample_header(), sample_refuse())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_refuse(parse(reader, golden)), sample_refuse());
}

TEST(Golden, credit) {
    const Bytes golden = from_hex("4c435050 0100 07 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 08000000 fb2bb2187bf78a9b"
                                  "9a78563412000000");
    EXPECT_EQ(to_hex(encode(Credit{0x123456789a})), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(decode_credit(parse(reader, golden))->bytes, 0x123456789au);
}

TEST(Golden, ping) {
    const Bytes golden = from_hex("4c435050 0100 08 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 08000000 f9e97ba395824bf6"
                                  "0807060504030201");
    EXPECT_EQ(to_hex(encode(Ping{0x0102030405060708})), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(decode_ping(parse(reader, golden))->nonce, 0x0102030405060708u);
}

TEST(Golden, pong) {
    const Bytes golden = from_hex("4c435050 0100 09 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 18000000 ff8f3aa4d5d3bafb"
                                  "0807060504030201 e803000000000000 18000000 50 fb 0000");
    EXPECT_EQ(to_hex(encode(sample_pong())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_pong(parse(reader, golden)), sample_pong());
}

TEST(Golden, goaway) {
    const Bytes golden = from_hex("4c435050 0100 0a 00 0000000000000000 00000000000000000000000000000000"
                                  "00000000 00000000 00000000 0000 0000 00000000 07000000 32a1e5f3ae415d9a"
                                  "0200 0300 627965");
    EXPECT_EQ(to_hex(encode(sample_goaway())), to_hex(golden));
    FrameReader reader;
    EXPECT_EQ(*decode_goaway(parse(reader, golden)), sample_goaway());
}

}  // namespace
}  // namespace linkcpp::wire::test
