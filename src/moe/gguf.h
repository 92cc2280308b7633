#pragma once
// GGUF version 2 and 3 files, read with bounds: magic, version, counts, metadata entries, tensor table, padding, data.
// Refused is what llama.cpp refuses, and what could make a reader overflow, allocate or loop beyond what the file's
// own size justifies. Pure functions over bytes; the views in the results point into those bytes and need them alive.

#include "base/bytes.h"
#include "base/status.h"

#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

namespace linkcpp::moe {

enum class GgufType : uint32_t {
    u8 = 0,
    i8 = 1,
    u16 = 2,
    i16 = 3,
    u32 = 4,
    i32 = 5,
    f32 = 6,
    boolean = 7,
    string = 8,
    array = 9,
    u64 = 10,
    i64 = 11,
    f64 = 12,
};

constexpr uint32_t gguf_default_alignment = 32;
/// Beyond what any writer uses (32 to 16384); bounds the padding that a header can ask for.
constexpr uint32_t gguf_max_alignment = 1 << 20;
/// Metadata entries, and tensors. Bounds the memory that a large file of tiny entries can ask for.
constexpr uint64_t gguf_max_entries = 1 << 18;

/// One metadata entry.
struct GgufField {
    std::string_view key;
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8;  ///< of an array; equal to `type` otherwise
    uint64_t count = 1;               ///< elements
    ByteSpan value;                   ///< the encoded elements, strings each with their u64 length
    ByteSpan raw;                     ///< the whole entry, for byte-exact copies

    /// The value as a number: any integer type that is not negative, or nullopt.
    std::optional<uint64_t> number() const;
    std::optional<std::string_view> text() const;
    /// An array of strings, or nullopt.
    std::optional<std::vector<std::string_view>> texts() const;
};

/// One entry of the tensor table.
struct GgufTensor {
    std::string_view name;
    int type = 0;  ///< ggml_type, one that this ggml knows
    uint32_t n_dims = 0;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    uint64_t offset = 0;  ///< of the data, from the beginning of the file
    uint64_t bytes = 0;   ///< of the data; offset + bytes is within the file
};

struct Gguf {
    uint32_t version = 0;
    uint32_t alignment = gguf_default_alignment;
    uint64_t data_offset = 0;         ///< size of the header, padding included
    uint64_t data_end = 0;            ///< where the last tensor ends; its padding may be missing
    std::vector<GgufField> fields;    ///< in file order
    std::vector<GgufTensor> tensors;  ///< in file order, which is the order of offsets
    std::map<std::string_view, size_t> field_index;

    /// nullptr when there is no such key.
    const GgufField* find(std::string_view key) const;
    std::optional<uint64_t> number(std::string_view key) const;
    std::optional<std::string_view> text(std::string_view key) const;
};

/// Reads the header at the beginning of `head`; the file as a whole has `file_bytes`, of which `head` needs to hold the
/// header only. Errors: corrupt, invalid_argument (not a GGUF file at all), unsupported (version, byte order, type).
Result<Gguf> parse_gguf(ByteSpan head, uint64_t file_bytes);

/// Bytes of a tensor of this type and shape. Errors: unsupported (the type), corrupt (negative or too large sizes, rows
/// that are no multiple of the block size). Messages begin with a verb: "has …".
Result<uint64_t> tensor_bytes(int type, const std::array<int64_t, 4>& ne);

/// "q4_K"; "?" for a number that is no type.
const char* tensor_type_name(int type);

}  // namespace linkcpp::moe
