#pragma once
// One sound frame of every type, with every field set, for tests.

#include "wire/messages.h"

namespace linkcpp::wire::test {

inline FrameHeader sample_header() {
    FrameHeader header;
    header.request = 0x1122334455667788;
    for (size_t i = 0; i < header.slice.size(); ++i)
        header.slice[i] = static_cast<uint8_t>(0xa0 + i);
    header.layer = 3;
    header.attempt = 2;
    return header;
}

inline Hello sample_hello() {
    return {.version_min = 1,
            .version_max = 2,
            .max_payload = 0x100000,
            .credit = 0x200000,
            .build = "b1",
            .numeric_class = "CPU:AVX2",
            .identity = "me"};
}

inline Welcome sample_welcome() {
    Welcome welcome{.version = 1,
                    .max_payload = 0x300000,
                    .credit = 0x400000,
                    .build = "w",
                    .numeric_class = "CPU",
                    .identity = ""};
    welcome.slices.push_back(
        {.slice = sample_header().slice, .layer_begin = 3, .layer_end = 5, .expert_begin = 8, .expert_end = 16});
    return welcome;
}

inline ProgramFrame sample_program() { return {.program = 7, .layer_begin = 3, .layer_end = 5, .code = {1, 2, 3}}; }

inline Compute sample_rows() {
    return {.program = 7,
            .output = Output::rows,
            .n_x = 2,
            .n_in = 2,
            .n_rows_out = 3,
            .x_row = {0, 1, 1},
            .expert = {4, 5, 6},
            .x = {1.0f, 2.0f, -1.0f, 0.5f}};
}

inline Compute sample_sums() {
    return {.program = 7,
            .output = Output::sums,
            .n_x = 1,
            .n_in = 2,
            .n_rows_out = 2,
            .x_row = {0, 0, 0},
            .expert = {4, 5, 6},
            .group = {0, 0, 1},
            .weight = {0.25f, 0.75f, 1.0f},
            .x = {1.0f, 2.0f}};
}

inline Bytes sample_result() {
    FrameHeader header = sample_header();
    header.flags = flag_last_tile;
    header.row_offset = 64;
    const float rows[] = {1.0f, 2.0f, 3.0f, 4.0f};
    return encode_result(header, 10, 20, 2, rows);
}

inline Refuse sample_refuse() { return {RefuseCode::no_time_left, "late"}; }
inline Pong sample_pong() {
    return {
        .nonce = 0x0102030405060708, .rows_done = 1000, .rows_queued = 24, .battery_percent = 80, .temperature_c = -5};
}
inline GoAway sample_goaway() { return {RefuseCode::draining, "bye"}; }

inline std::vector<Bytes> sample_frames() {
    FrameHeader compute = sample_header();
    compute.time_allowed_ms = 1500;
    return {encode(sample_hello()),
            encode(sample_welcome()),
            encode(sample_header(), sample_program()),
            encode(compute, sample_rows()),
            encode(compute, sample_sums()),
            sample_result(),
            encode(sample_header(), sample_refuse()),
            encode(Credit{0x123456789a}),
            encode(Ping{0x0102030405060708}),
            encode(sample_pong()),
            encode(sample_goaway())};
}

}  // namespace linkcpp::wire::test
