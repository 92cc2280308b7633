// FrameReader against every small damage of every frame.
#include "wire/checksum.h"
#include "wire/samples.h"

#include <gtest/gtest.h>

namespace linkcpp::wire::test {
namespace {

constexpr uint32_t cap = 4096;

/// Feeds `bytes` and counts sound frames until the reader wants more or fails.
struct Outcome {
    int n_frames = 0;
    Status error;
};
Outcome read_all(FrameReader& reader, ByteSpan bytes) {
    Outcome outcome;
    reader.feed(bytes);
    while (true) {
        auto frame = reader.next();
        if (!frame.ok()) {
            outcome.error = frame.status();
            return outcome;
        }
        if (!frame->has_value()) return outcome;
        ++outcome.n_frames;
    }
}

TEST(FrameReader, refuses_every_single_bit_flip) {
    for (const Bytes& frame : sample_frames()) {
        for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
            Bytes broken = frame;
            broken[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
            // A length that grew waits for bytes; give it all it may ask for.
            broken.resize(frame.size() + cap);
            FrameReader reader(cap);
            const Outcome outcome = read_all(reader, broken);
            EXPECT_EQ(outcome.n_frames, 0) << frame_type_name(static_cast<FrameType>(frame[6])) << " bit " << bit;
            EXPECT_FALSE(outcome.error.ok()) << frame_type_name(static_cast<FrameType>(frame[6])) << " bit " << bit;
        }
    }
}

TEST(FrameReader, waits_at_every_truncation) {
    for (const Bytes& frame : sample_frames()) {
        for (size_t size = 0; size < frame.size(); ++size) {
            FrameReader reader(cap);
            Outcome outcome = read_all(reader, ByteSpan(frame).first(size));
            EXPECT_EQ(outcome.n_frames, 0);
            EXPECT_TRUE(outcome.error.ok()) << outcome.error.message();
            outcome = read_all(reader, ByteSpan(frame).subspan(size));
            EXPECT_EQ(outcome.n_frames, 1);
        }
    }
}

TEST(FrameReader, any_split_gives_the_same_frames) {
    Bytes stream;
    for (const Bytes& frame : sample_frames())
        stream.insert(stream.end(), frame.begin(), frame.end());
    for (size_t step : {size_t{1}, size_t{2}, size_t{63}, size_t{64}, size_t{65}, size_t{500}, stream.size()}) {
        FrameReader reader(cap);
        std::vector<Bytes> payloads;
        std::vector<FrameHeader> headers;
        for (size_t at = 0; at < stream.size(); at += step) {
            reader.feed(ByteSpan(stream).subspan(at, std::min(step, stream.size() - at)));
            while (true) {
                auto frame = reader.next();
                ASSERT_TRUE(frame.ok());
                if (!frame->has_value()) break;
                headers.push_back((*frame)->header);
                payloads.emplace_back((*frame)->payload.begin(), (*frame)->payload.end());
            }
        }
        const std::vector<Bytes> frames = sample_frames();
        ASSERT_EQ(payloads.size(), frames.size());
        for (size_t i = 0; i < frames.size(); ++i) {
            EXPECT_EQ(payloads[i], Bytes(frames[i].begin() + header_bytes, frames[i].end()));
            Bytes again(frames[i]);
            seal_frame(headers[i], again);
            EXPECT_EQ(again, frames[i]);
        }
    }
}

/// As a link does it: what fits is put where the reader wants it.
TEST(FrameReader, frames_received_in_place_are_the_same) {
    constexpr uint32_t large_cap = 4 << 20;
    std::vector<Bytes> frames = sample_frames();
    for (const size_t size : {20000u, 300000u, 3000000u, 70000u}) {
        Bytes large(header_bytes + size);
        for (size_t i = header_bytes; i < large.size(); ++i)
            large[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
        seal_frame({.type = FrameType::compute}, large);
        frames.push_back(std::move(large));
        frames.push_back(encode(Ping{size}));
    }
    Bytes stream;
    for (const Bytes& frame : frames)
        stream.insert(stream.end(), frame.begin(), frame.end());
    for (const size_t step : {size_t{700}, size_t{40000}, size_t{262144}, stream.size()}) {
        FrameReader reader(large_cap);
        size_t n_frames = 0, n_in_place = 0;
        Bytes received(step);
        for (size_t at = 0, size = 0; at < stream.size(); at += size) {
            const std::span<uint8_t> room = reader.room();
            const std::span<uint8_t> into =
                room.empty() ? std::span(received) : room.first(std::min(room.size(), step));
            size = std::min(into.size(), stream.size() - at);
            std::copy_n(stream.begin() + static_cast<ptrdiff_t>(at), size, into.begin());
            if (!room.empty()) n_in_place += size;
            reader.feed(into.first(size));
            while (true) {
                const auto frame = reader.next();
                ASSERT_TRUE(frame.ok()) << frame.status().message();
                if (!frame->has_value()) break;
                ASSERT_LT(n_frames, frames.size());
                EXPECT_TRUE(std::equal((*frame)->payload.begin(), (*frame)->payload.end(),
                                       frames[n_frames].begin() + header_bytes, frames[n_frames].end()))
                    << "frame " << n_frames << ", step " << step;
                ++n_frames;
            }
        }
        EXPECT_EQ(n_frames, frames.size());
        if (step < stream.size()) {
            EXPECT_GT(n_in_place, stream.size() / 2);
        }
    }
}

TEST(FrameReader, a_header_alone_costs_little_memory) {
    Bytes frame(header_bytes + (1 << 20));
    seal_frame({.type = FrameType::compute}, frame);
    FrameReader reader(1 << 20);
    read_all(reader, ByteSpan(frame).first(header_bytes + 1));
    EXPECT_LE(reader.held_bytes(), 1u << 18);
    EXPECT_LE(reader.room().size(), 1u << 18);
}

TEST(Checksum, of_two_parts_is_that_of_the_whole) {
    Bytes bytes(300000);
    for (size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 24);
    for (const size_t size : {size_t{64}, size_t{241}, size_t{1025}, bytes.size()}) {
        const ByteSpan whole = ByteSpan(bytes).first(size);
        for (const size_t cut : {size_t{0}, size_t{1}, size_t{63}, size / 2, size})
            EXPECT_EQ(checksum(whole.first(cut), whole.subspan(cut)), checksum(whole)) << size << " at " << cut;
    }
}

TEST(FrameReader, says_what_is_wrong) {
    const auto error_of = [](void (*damage)(Bytes&)) {
        Bytes frame = encode(Ping{1});
        damage(frame);
        FrameReader reader(cap);
        return read_all(reader, frame).error;
    };
    EXPECT_EQ(error_of([](Bytes& frame) { frame[0] = 'G'; }).code(), Code::corrupt);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[6] = 0; }).code(), Code::corrupt);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[6] = 11; }).code(), Code::corrupt);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[7] = 1; }).code(), Code::corrupt);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[46] = 1; }).code(), Code::corrupt);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[4] = 9; }).code(), Code::mismatch);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[53] = 0xff; }).code(), Code::exhausted);
    EXPECT_EQ(error_of([](Bytes& frame) { frame[64] ^= 1; }).code(), Code::corrupt);
}

TEST(FrameReader, a_stranger_shows_in_the_first_bytes) {
    FrameReader reader;
    const std::string request = "G";
    EXPECT_EQ(read_all(reader, as_bytes(std::span(request.data(), request.size()))).error.code(), Code::corrupt);
}

TEST(FrameReader, an_error_is_final) {
    FrameReader reader(cap);
    Bytes frame = encode(Ping{1});
    frame[0] = 0;
    EXPECT_FALSE(read_all(reader, frame).error.ok());
    const Outcome outcome = read_all(reader, encode(Ping{1}));
    EXPECT_EQ(outcome.n_frames, 0);
    EXPECT_FALSE(outcome.error.ok());
}

TEST(FrameReader, the_cap_comes_before_the_payload) {
    Bytes frame(header_bytes + cap + 1);
    seal_frame({.type = FrameType::compute}, frame);
    FrameReader strict(cap);
    EXPECT_EQ(read_all(strict, ByteSpan(frame).first(header_bytes)).error.code(), Code::exhausted);
    FrameReader wide(cap);
    wide.set_max_payload(cap + 1);
    EXPECT_EQ(read_all(wide, frame).n_frames, 1);
}

TEST(FrameReader, holds_to_the_version_of_the_session) {
    Bytes frame(header_bytes);
    seal_frame({.version = 2, .type = FrameType::ping}, frame);
    FrameReader any;
    EXPECT_EQ(read_all(any, frame).error.code(), Code::mismatch);
    FrameReader second;
    second.set_version(2);
    EXPECT_EQ(read_all(second, frame).n_frames, 1);
    // HELLO, WELCOME and GOAWAY have one layout for all versions.
    for (FrameType type : {FrameType::hello, FrameType::welcome, FrameType::goaway}) {
        seal_frame({.version = 77, .type = type}, frame);
        FrameReader reader;
        EXPECT_EQ(read_all(reader, frame).n_frames, 1);
    }
}

}  // namespace
}  // namespace linkcpp::wire::test
