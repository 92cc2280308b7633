#include "moe/gguf_writer.h"

#include <cassert>

namespace linkcpp::moe {

namespace {

ByteSpan bytes_of(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

void put_text(ByteWriter& out, std::string_view text) {
    out.u64(text.size());
    out.raw(bytes_of(text));
}

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
    assert(alignment != 0 && (alignment & (alignment - 1)) == 0);
    put_u32("general.alignment", alignment);
}

void GgufWriter::put_key(std::string_view key, GgufType type) {
    put_text(fields_, key);
    fields_.u32(static_cast<uint32_t>(type));
    ++n_fields_;
}

void GgufWriter::copy_all(ByteSpan entries, uint64_t count) {
    fields_.raw(entries);
    n_fields_ += count;
}

void GgufWriter::put_u32(std::string_view key, uint32_t value) {
    put_key(key, GgufType::u32);
    fields_.u32(value);
}

void GgufWriter::put_string(std::string_view key, std::string_view value) {
    put_key(key, GgufType::string);
    put_text(fields_, value);
}

void GgufWriter::put_strings(std::string_view key, std::span<const std::string> values) {
    put_key(key, GgufType::array);
    fields_.u32(static_cast<uint32_t>(GgufType::string));
    fields_.u64(values.size());
    for (const std::string& value : values)
        put_text(fields_, value);
}

uint64_t GgufWriter::add_tensor(std::string_view name, int type, std::span<const int64_t> ne, uint64_t bytes) {
    put_text(tensors_, name);
    tensors_.u32(static_cast<uint32_t>(ne.size()));
    for (int64_t n : ne)
        tensors_.put(n);
    tensors_.put(static_cast<int32_t>(type));
    const uint64_t offset = data_bytes_;
    tensors_.u64(offset);
    data_bytes_ = (data_bytes_ + bytes + alignment_ - 1) / alignment_ * alignment_;
    ++n_tensors_;
    return offset;
}

Bytes GgufWriter::header() {
    ByteWriter out;
    out.raw(bytes_of("GGUF"));
    out.u32(3);
    out.u64(n_tensors_);
    out.u64(n_fields_);
    out.raw(fields_.bytes());
    out.raw(tensors_.bytes());
    out.zeros((alignment_ - out.size() % alignment_) % alignment_);
    return out.take();
}

}  // namespace linkcpp::moe
