#pragma once
// GGUF files as bytes, made by hand: correct ones and, by setting the fields that a test is about, wrong ones. Kept apart
// from the product's own writer, so that the two check each other.

#include "base/bytes.h"
#include "moe/gguf.h"

#include <optional>
#include <string>

namespace linkcpp::test {

struct GgufBytes {
    struct Tensor {
        std::string name;
        std::vector<int64_t> ne;
        int32_t type = 0;  // GGML_TYPE_F32
        Bytes data;
        std::optional<uint64_t> offset;  // default: where it belongs
        std::optional<uint32_t> n_dims;  // default: as many as `ne`
    };

    std::string magic = "GGUF";
    uint32_t version = 3;
    std::optional<uint64_t> n_fields, n_tensors;  // default: as many as there are
    uint32_t alignment = 32;                      // of the layout; field("general.alignment") is separate
    std::vector<Bytes> fields;
    std::vector<Tensor> tensors;

    static void put_string(ByteWriter& out, std::string_view text);
    /// A metadata entry whose value is encoded already.
    GgufBytes& field(std::string_view key, moe::GgufType type, const Bytes& value);
    GgufBytes& u32(std::string_view key, uint32_t value);
    GgufBytes& text(std::string_view key, std::string_view value);
    GgufBytes& u16(std::string_view key, uint16_t value);
    /// A tensor of f32 whose bytes count up from `seed`.
    GgufBytes& f32_tensor(const std::string& name, std::vector<int64_t> ne, uint8_t seed = 1);

    Bytes bytes() const;
    Bytes header() const;

    /// Takes a correct file apart, to be changed and put together again.
    static GgufBytes from(const Bytes& file);
    GgufBytes& without(std::string_view key);
};

/// Splits a file as llama.cpp's tool does: metadata in the first part, tensors spread over all of them.
std::vector<GgufBytes> split(const GgufBytes& whole, int n_parts);

/// A model with two layers, of which the second has 4 experts of every kind and role: 8 x 6 weights, all f32.
GgufBytes small_moe();

}  // namespace linkcpp::test
