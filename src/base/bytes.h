#pragma once
// Little-endian bytes. Everything that is read from a file or a peer goes through ByteReader, everything written goes
// through ByteWriter; no struct is ever cast to bytes. A reader never throws and never reads beyond its span: after the
// first short read it stays failed, returns zeros, and ok() tells. Not thread-safe; cheap to copy.

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace linkcpp {

using Bytes = std::vector<uint8_t>;
using ByteSpan = std::span<const uint8_t>;

static_assert(std::endian::native == std::endian::little || std::endian::native == std::endian::big);

template <typename T>
T from_little_endian(const uint8_t* bytes) {
    static_assert(std::is_trivially_copyable_v<T>);
    uint8_t copy[sizeof(T)];
    for (size_t i = 0; i < sizeof(T); ++i) {
        copy[i] = bytes[std::endian::native == std::endian::little ? i : sizeof(T) - 1 - i];
    }
    T value;
    std::memcpy(&value, copy, sizeof(T));
    return value;
}

template <typename T>
void to_little_endian(T value, uint8_t* bytes) {
    static_assert(std::is_trivially_copyable_v<T>);
    uint8_t copy[sizeof(T)];
    std::memcpy(copy, &value, sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) {
        bytes[std::endian::native == std::endian::little ? i : sizeof(T) - 1 - i] = copy[i];
    }
}

class ByteReader {
  public:
    explicit ByteReader(ByteSpan bytes) : bytes_(bytes) {}

    template <typename T>
    T get() {
        ByteSpan raw = take(sizeof(T));
        return ok_ ? from_little_endian<T>(raw.data()) : T{};
    }
    uint8_t u8() { return get<uint8_t>(); }
    uint16_t u16() { return get<uint16_t>(); }
    uint32_t u32() { return get<uint32_t>(); }
    uint64_t u64() { return get<uint64_t>(); }
    float f32() { return get<float>(); }

    /// The next `size` bytes, or an empty span (and ok() false) when fewer are left.
    ByteSpan take(size_t size) {
        if (!ok_ || size > bytes_.size() - offset_) {
            ok_ = false;
            return {};
        }
        ByteSpan raw = bytes_.subspan(offset_, size);
        offset_ += size;
        return raw;
    }
    /// A string with a u16 length in front.
    std::string string16() {
        ByteSpan raw = take(u16());
        return std::string(raw.begin(), raw.end());
    }

    bool ok() const { return ok_; }
    size_t left() const { return ok_ ? bytes_.size() - offset_ : 0; }
    size_t offset() const { return offset_; }
    /// True when everything was read and nothing is left: the test for a well-formed payload.
    bool done() const { return ok_ && offset_ == bytes_.size(); }

  private:
    ByteSpan bytes_;
    size_t offset_ = 0;
    bool ok_ = true;
};

class ByteWriter {
  public:
    template <typename T>
    void put(T value) {
        size_t at = bytes_.size();
        bytes_.resize(at + sizeof(T));
        to_little_endian(value, bytes_.data() + at);
    }
    void u8(uint8_t value) { put(value); }
    void u16(uint16_t value) { put(value); }
    void u32(uint32_t value) { put(value); }
    void u64(uint64_t value) { put(value); }
    void f32(float value) { put(value); }
    void raw(ByteSpan bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
    void zeros(size_t count) { bytes_.resize(bytes_.size() + count); }
    /// A string with a u16 length in front; longer ones are cut at 65535 bytes.
    void string16(std::string_view text) {
        text = text.substr(0, UINT16_MAX);
        u16(static_cast<uint16_t>(text.size()));
        raw({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
    }

    size_t size() const { return bytes_.size(); }
    Bytes& bytes() { return bytes_; }
    Bytes take() { return std::move(bytes_); }

  private:
    Bytes bytes_;
};

/// Views of plain numbers as bytes, for tensor data, which is little-endian on every machine we run on.
template <typename T>
ByteSpan as_bytes(std::span<const T> values) {
    static_assert(std::is_arithmetic_v<T>);
    static_assert(std::endian::native == std::endian::little, "tensor data is sent as it lies in memory");
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace linkcpp
