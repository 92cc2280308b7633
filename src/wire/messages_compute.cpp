// COMPUTE and RESULT, the frames that carry activations.
#include "wire/messages.h"

#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace linkcpp::wire {

namespace {

constexpr size_t compute_fixed_bytes = 24;
constexpr size_t result_fixed_bytes = 16;
constexpr uint8_t compute_weighted = 1;

Status wrong(const std::string& what) { return {Code::corrupt, "COMPUTE: " + what}; }

template <typename T>
std::vector<T> read_array(ByteReader& in, size_t count) {
    std::vector<T> values(count);
    ByteSpan raw = in.take(count * sizeof(T));
    static_assert(std::endian::native == std::endian::little);
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
}

uint64_t saturating_add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t saturating_mul(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/// The relations between the numbers of a COMPUTE whose length is right.
Status check_indices(const Compute& compute, size_t n_pairs) {
    for (uint32_t row : compute.x_row) {
        if (row >= compute.n_x) return wrong(fmt::format("activation row {} of {}", row, compute.n_x));
    }
    if (compute.output == Output::rows) {
        if (compute.n_rows_out != n_pairs) return wrong("the output rows are not the pairs");
        return {};
    }
    // Groups count up from 0 without a gap, so that every output row is defined.
    uint32_t previous = 0;
    for (size_t i = 0; i < n_pairs; ++i) {
        const uint32_t group = compute.group[i];
        const bool next = i > 0 && group == previous + 1;
        if (group != previous && !next) return wrong("the groups are not in order, or one is missing");
        previous = group;
    }
    if (previous + uint64_t{1} != compute.n_rows_out) return wrong("the output rows are not the groups");
    return {};
}

}  // namespace

uint64_t compute_payload_bytes(Output output, uint64_t n_x, uint64_t n_in, uint64_t n_pairs, bool weighted) {
    const uint64_t per_pair = (output == Output::sums ? (weighted ? 4 : 3) : 2) * sizeof(uint32_t);
    const uint64_t activations = saturating_mul(saturating_mul(n_x, n_in), sizeof(float));
    return saturating_add(saturating_add(compute_fixed_bytes, saturating_mul(n_pairs, per_pair)), activations);
}

uint64_t result_payload_bytes(uint64_t n_out, uint64_t n_rows) {
    return saturating_add(result_fixed_bytes, saturating_mul(saturating_mul(n_out, n_rows), sizeof(float)));
}

ComputeFrame::ComputeFrame(const Compute& compute)
    : n_pairs_(static_cast<uint32_t>(compute.x_row.size())), n_rows_out_(compute.n_rows_out) {
    const bool sums = compute.output == Output::sums;
    const bool weighted = sums && !compute.weight.empty();
    assert(compute.expert.size() == n_pairs_);
    assert(!sums || compute.group.size() == n_pairs_);
    assert(!weighted || compute.weight.size() == n_pairs_);
    payload_bytes_ = compute_payload_bytes(compute.output, compute.n_x, compute.n_in, n_pairs_, weighted);
    out_.bytes().reserve(header_bytes + payload_bytes_);
    out_.zeros(header_bytes);
    out_.u32(0);  // the program's number, which seal() knows
    out_.u8(static_cast<uint8_t>(compute.output));
    out_.u8(weighted ? compute_weighted : 0);
    out_.u16(0);
    out_.u32(compute.n_x);
    out_.u32(compute.n_in);
    out_.u32(n_pairs_);
    out_.u32(n_rows_out_);
    out_.raw(as_bytes(std::span(compute.x_row)));
    out_.raw(as_bytes(std::span(compute.expert)));
    if (sums) out_.raw(as_bytes(std::span(compute.group)));
    if (weighted) out_.raw(as_bytes(std::span(compute.weight)));
}

void ComputeFrame::add_rows(std::span<const float> x) { out_.raw(as_bytes(x)); }

Bytes ComputeFrame::seal(FrameHeader header, uint32_t program) && {
    assert(out_.size() == header_bytes + payload_bytes_);
    to_little_endian(program, out_.bytes().data() + header_bytes);
    header.type = FrameType::compute;
    header.flags = 0;
    header.rows = n_rows_out_;
    seal_frame(header, out_.bytes());
    return out_.take();
}

Bytes encode(FrameHeader header, const Compute& compute) {
    ComputeFrame frame(compute);
    frame.add_rows(compute.x);
    return std::move(frame).seal(header, compute.program);
}

Result<Compute> decode_compute(const Frame& frame) {
    ByteReader in(frame.payload);
    Compute compute;
    compute.program = in.u32();
    const uint8_t output = in.u8();
    const uint8_t bits = in.u8();
    const uint16_t reserved = in.u16();
    compute.n_x = in.u32();
    compute.n_in = in.u32();
    const uint32_t n_pairs = in.u32();
    compute.n_rows_out = in.u32();
    if (!in.ok()) return wrong("the length is wrong");
    if (output > static_cast<uint8_t>(Output::sums)) return wrong(fmt::format("unknown output {}", output));
    compute.output = static_cast<Output>(output);
    const bool sums = compute.output == Output::sums;
    const bool weighted = (bits & compute_weighted) != 0;
    if ((bits & ~compute_weighted) != 0 || reserved != 0) return wrong("reserved bits are set");
    if (weighted && !sums) return wrong("weights, but no sums");
    if (n_pairs == 0 || compute.n_x == 0 || compute.n_in == 0) return wrong("nothing to compute");
    if (frame.payload.size() != compute_payload_bytes(compute.output, compute.n_x, compute.n_in, n_pairs, weighted)) {
        return wrong("the length does not fit the counts");
    }
    if (frame.header.rows != compute.n_rows_out) return wrong("the header has another number of rows");

    compute.x_row = read_array<uint32_t>(in, n_pairs);
    compute.expert = read_array<uint32_t>(in, n_pairs);
    if (sums) compute.group = read_array<uint32_t>(in, n_pairs);
    if (weighted) compute.weight = read_array<float>(in, n_pairs);
    LINKCPP_TRY(check_indices(compute, n_pairs));
    const ByteSpan x = in.take(in.left());
    compute.x.resize(x.size() / sizeof(float));
    std::memcpy(compute.x.data(), x.data(), x.size());
    return compute;
}

Bytes encode_result_head(FrameHeader header, uint32_t queue_us, uint32_t compute_us, uint32_t n_out,
                         std::span<const float> rows) {
    assert(n_out > 0 && rows.size() % n_out == 0 && rows.size() / n_out <= max_tile_rows);
    ByteWriter out;
    out.zeros(header_bytes);
    out.u32(queue_us);
    out.u32(compute_us);
    out.u32(n_out);
    out.u32(0);
    header.type = FrameType::result;
    header.rows = static_cast<uint32_t>(rows.size() / n_out);
    seal_frame(header, out.bytes(), as_bytes(rows));
    return out.take();
}

Bytes encode_result(FrameHeader header, uint32_t queue_us, uint32_t compute_us, uint32_t n_out,
                    std::span<const float> rows) {
    Bytes frame = encode_result_head(header, queue_us, compute_us, n_out, rows);
    const ByteSpan bytes = as_bytes(rows);
    frame.insert(frame.end(), bytes.begin(), bytes.end());
    return frame;
}

Result<ResultTile> decode_result(const Frame& frame) {
    ByteReader in(frame.payload);
    ResultTile tile;
    tile.queue_us = in.u32();
    tile.compute_us = in.u32();
    tile.n_out = in.u32();
    const uint32_t reserved = in.u32();
    const uint32_t n_rows = frame.header.rows;
    if (!in.ok() || frame.payload.size() != result_payload_bytes(tile.n_out, n_rows)) {
        return {Code::corrupt, "RESULT: the length does not fit the rows"};
    }
    if (reserved != 0) return {Code::corrupt, "RESULT: reserved bits are set"};
    if (n_rows == 0 || n_rows > max_tile_rows || tile.n_out == 0) {
        return {Code::corrupt, fmt::format("RESULT: a tile of {} rows of {}", n_rows, tile.n_out)};
    }
    if (frame.header.row_offset > UINT32_MAX - n_rows) return {Code::corrupt, "RESULT: an impossible row offset"};
    tile.rows = in.take(in.left());
    return tile;
}

}  // namespace linkcpp::wire
