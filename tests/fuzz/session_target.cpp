// Bytes from a peer -> session -> messages, for both sides. Whatever is accepted must be the message of exactly these bytes:
// encoded again it gives them back.
//
// Input: one byte of options, then what the peer sends. Options: bit 0 the side that receives (worker, backbone), bit 1 make
// the checksums right (a fuzzer cannot), bit 2 the handshake is over already, bits 4 to 7 how the bytes are cut.
#include "fuzz/check.h"
#include "wire/checksum.h"
#include "wire/samples.h"
#include "wire/session.h"

#include <algorithm>

namespace {

using namespace linkcpp;
using namespace linkcpp::wire;
using fuzz::require;

constexpr uint32_t cap = 1 << 16;
constexpr size_t at_length = 52, at_checksum = 56;

size_t frame_size(ByteSpan frame) { return header_bytes + from_little_endian<uint32_t>(frame.data() + at_length); }

void seal_all(Bytes& stream) {
    for (size_t at = 0; stream.size() - at >= header_bytes;) {
        const std::span<uint8_t> rest = std::span(stream).subspan(at);
        const size_t size = frame_size(rest);
        if (size > rest.size()) return;
        to_little_endian<uint64_t>(0, rest.data() + at_checksum);
        to_little_endian(checksum(rest.first(size)), rest.data() + at_checksum);
        at += size;
    }
}

/// Follows the stream frame by frame and compares what is reported with the bytes it came from.
class Comparer final : public SessionHandler {
  public:
    Comparer(Session& session, ByteSpan stream) : session_(session), stream_(stream) {}

    void on_hello(const Hello& hello) override {
        same_payload(encode(hello));
        Welcome welcome = test::sample_welcome();
        welcome.credit = hello.credit;
        require(session_.welcome_for(hello, std::move(welcome)).size() > header_bytes, "a HELLO can be answered");
        require(session_.established(), "the answer opens the session");
    }
    void on_welcome(const Welcome& welcome) override { same_payload(encode(welcome)); }
    void on_program(const FrameHeader& header, ProgramFrame&& program) override { same_frame(encode(header, program)); }
    void on_compute(const FrameHeader& header, Compute&& compute) override {
        require(compute.x_row.size() == compute.expert.size(), "every pair has a row and an expert");
        for (uint32_t row : compute.x_row)
            require(row < compute.n_x, "activation rows are within bounds");
        for (uint32_t group : compute.group)
            require(group < compute.n_rows_out, "groups are within bounds");
        same_frame(encode(header, compute));
    }
    void on_result(const FrameHeader& header, const ResultTile& tile) override {
        require(header.rows > 0 && header.rows <= max_tile_rows, "a tile has 1 to 64 rows");
        std::vector<float> rows(tile.rows.size() / sizeof(float));
        std::memcpy(rows.data(), tile.rows.data(), tile.rows.size());
        same_frame(encode_result(header, tile.queue_us, tile.compute_us, tile.n_out, rows));
    }
    void on_refuse(const FrameHeader& header, const Refuse& refuse) override { same_frame(encode(header, refuse)); }
    void on_credit(const Credit& credit) override { same_payload(encode(credit)); }
    void on_ping(const Ping& ping) override { same_payload(encode(ping)); }
    void on_pong(const Pong& pong) override { same_payload(encode(pong)); }
    void on_goaway(const GoAway& goaway) override {
        Bytes again = encode(goaway);
        // Reasons of later versions are read as `failed`.
        if (goaway.reason == RefuseCode::failed) std::copy_n(stream_.data() + header_bytes, 2, &again[header_bytes]);
        same_payload(again);
    }
    void on_malformed_request(const FrameHeader& header, const Status& status) override {
        require(header.type == FrameType::program || header.type == FrameType::compute, "only requests are excused");
        require(!status.ok() && !status.message().empty(), "an error has a reason");
        stream_ = stream_.subspan(frame_size(stream_));
    }

  private:
    ByteSpan take_frame() {
        const ByteSpan frame = stream_.first(frame_size(stream_));
        stream_ = stream_.subspan(frame.size());
        require(session_.payload_bytes() == frame.size() - header_bytes, "credit is counted in the frame's payload");
        return frame;
    }
    void same_frame(const Bytes& again) {
        const ByteSpan frame = take_frame();
        require(std::equal(frame.begin(), frame.end(), again.begin(), again.end()), "a frame encodes to its own bytes");
    }
    /// For frames whose header says nothing: what stands in its unused fields is ignored.
    void same_payload(const Bytes& again) {
        const ByteSpan payload = take_frame().subspan(header_bytes);
        require(std::equal(payload.begin(), payload.end(), again.begin() + header_bytes, again.end()),
                "a payload encodes to its own bytes");
    }

    Session& session_;
    ByteSpan stream_;
};

void shake_hands(Side side, Session& session) {
    struct Answering final : SessionHandler {
        explicit Answering(Session& answering) : session(answering) {}
        void on_hello(const Hello& hello) override { session.welcome_for(hello, test::sample_welcome()); }
        Session& session;
    } handler(session);
    const Bytes frame = side == Side::worker ? encode(test::sample_hello()) : encode(test::sample_welcome());
    require(session.feed(frame, handler).ok() && session.established(), "the handshake works");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteSpan input(data, size);
    const auto options = fuzz::cut<uint8_t>(input);
    const Side side = options & 1 ? Side::backbone : Side::worker;
    Bytes stream(input.begin(), input.end());
    if (options & 2) seal_all(stream);

    Session session(side, cap);
    if (options & 4) shake_hands(side, session);
    Comparer comparer(session, stream);
    const size_t step = options >> 4 ? size_t{1} << (options >> 4) : std::max<size_t>(stream.size(), 1);
    for (size_t at = 0; at < stream.size(); at += step) {
        const Status status = session.feed(ByteSpan(stream).subspan(at, std::min(step, stream.size() - at)), comparer);
        if (status.ok()) continue;
        require(Session::goaway_for(status).size() <= header_bytes + max_handshake_payload, "a GOAWAY is small");
        break;
    }
    return 0;
}
