#include "moe/gguf.h"

#include "ggml.h"

#include <fmt/format.h>
#include <set>

namespace linkcpp::moe {

namespace {

/// Bytes of one element, 0 for those without a fixed size (and for numbers that are no type).
size_t fixed_size(GgufType type) {
    switch (type) {
        case GgufType::u8:
        case GgufType::i8:
        case GgufType::boolean: return 1;
        case GgufType::u16:
        case GgufType::i16: return 2;
        case GgufType::u32:
        case GgufType::i32:
        case GgufType::f32: return 4;
        case GgufType::u64:
        case GgufType::i64:
        case GgufType::f64: return 8;
        case GgufType::string:
        case GgufType::array: return 0;
    }
    return 0;
}

Status corrupt(std::string message) { return {Code::corrupt, std::move(message)}; }

/// Names from a file go into messages: cut, and with control characters replaced.
std::string printable(std::string_view name) {
    std::string text(name.substr(0, 100));
    for (char& c : text) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return text;
}

std::string_view view(ByteSpan bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Rounds up to a power of two; false when that does not fit.
bool pad(uint64_t value, uint64_t alignment, uint64_t& padded) {
    if (__builtin_add_overflow(value, alignment - 1, &padded)) return false;
    padded &= ~(alignment - 1);
    return true;
}

class Parser {
  public:
    Parser(ByteSpan head, uint64_t file_bytes) : head_(head), in_(head), file_bytes_(file_bytes) {}

    Result<Gguf> run() {
        LINKCPP_TRY(counts());
        for (uint64_t i = 0; i < n_fields_; ++i)
            LINKCPP_TRY(field(i));
        LINKCPP_TRY(alignment());
        for (uint64_t i = 0; i < n_tensors_; ++i)
            LINKCPP_TRY(tensor(i));
        LINKCPP_TRY(data());
        return std::move(gguf_);
    }

  private:
    Status counts();
    Status field(uint64_t index);
    Status field_value(GgufField& field);
    Status alignment();
    Status tensor(uint64_t index);
    Status shape(GgufTensor& tensor, const std::string& name);
    Status size(GgufTensor& tensor, const std::string& name);
    Status data();

    Status ends_in(std::string what) const { return corrupt("the file ends within its " + std::move(what)); }

    /// A string with its u64 length; in_ fails when it does not fit.
    std::string_view string() {
        const uint64_t size = in_.u64();
        // Compared as u64: take() counts in size_t, which may be smaller.
        if (size > in_.left()) {
            in_.take(SIZE_MAX);
            return {};
        }
        return view(in_.take(static_cast<size_t>(size)));
    }

    ByteSpan head_;
    ByteReader in_;
    uint64_t file_bytes_;
    uint64_t n_fields_ = 0, n_tensors_ = 0;
    uint64_t expected_offset_ = 0;
    std::set<std::string_view> tensor_names_;
    Gguf gguf_;
};

Status Parser::counts() {
    const ByteSpan magic = in_.take(4);
    if (!in_.ok() || view(magic) != "GGUF")
        return {Code::invalid_argument, "not a GGUF file: it does not begin with GGUF"};
    gguf_.version = in_.u32();
    n_tensors_ = in_.u64();
    n_fields_ = in_.u64();
    if (!in_.ok()) return ends_in("first 24 bytes");
    if ((gguf_.version & 0xffff) == 0) return {Code::unsupported, "a GGUF file of the other byte order"};
    if (gguf_.version != 2 && gguf_.version != 3) {
        return {Code::unsupported, fmt::format("GGUF version {}; versions 2 and 3 are supported", gguf_.version)};
    }
    if (n_fields_ > gguf_max_entries || n_tensors_ > gguf_max_entries) {
        return corrupt(fmt::format("{} metadata entries and {} tensors are too many", n_fields_, n_tensors_));
    }
    // The smallest entries: key of one character, type, one byte; name, dimension count, type, offset.
    if (n_fields_ > in_.left() / 14)
        return corrupt(fmt::format("{} metadata entries do not fit into the file", n_fields_));
    if (n_tensors_ > in_.left() / 24) return corrupt(fmt::format("{} tensors do not fit into the file", n_tensors_));
    return {};
}

Status Parser::field(uint64_t index) {
    const size_t begin = in_.offset();
    GgufField field;
    field.key = string();
    field.type = field.element = static_cast<GgufType>(in_.u32());
    if (field.type == GgufType::array) {
        field.element = static_cast<GgufType>(in_.u32());
        field.count = in_.u64();
    }
    if (!in_.ok()) return ends_in(fmt::format("metadata (entry {} of {})", index + 1, n_fields_));
    if (field.key.empty()) return corrupt(fmt::format("metadata entry {} has no name", index + 1));
    LINKCPP_TRY(field_value(field));
    field.raw = head_.subspan(begin, in_.offset() - begin);
    if (!gguf_.field_index.emplace(field.key, gguf_.fields.size()).second) {
        return corrupt(fmt::format("two metadata entries are called {}", printable(field.key)));
    }
    gguf_.fields.push_back(field);
    return {};
}

Status Parser::field_value(GgufField& field) {
    const size_t begin = in_.offset();
    if (field.element == GgufType::string) {
        if (field.count > in_.left() / 8) return ends_in("metadata: " + printable(field.key));
        for (uint64_t i = 0; i < field.count && in_.ok(); ++i)
            string();
    } else {
        const size_t size = fixed_size(field.element);
        if (size == 0) {
            return corrupt(fmt::format("metadata entry {} has the unknown type {}", printable(field.key),
                                       static_cast<uint32_t>(field.element)));
        }
        if (field.count > in_.left() / size) return ends_in("metadata: " + printable(field.key));
        in_.take(static_cast<size_t>(field.count) * size);
    }
    if (!in_.ok()) return ends_in("metadata: " + printable(field.key));
    field.value = head_.subspan(begin, in_.offset() - begin);
    return {};
}

Status Parser::alignment() {
    const GgufField* field = gguf_.find("general.alignment");
    if (!field) return {};
    if (field->type != GgufType::u32) return corrupt("general.alignment is not of type uint32");
    gguf_.alignment = static_cast<uint32_t>(*field->number());
    if (gguf_.alignment == 0 || (gguf_.alignment & (gguf_.alignment - 1)) != 0) {
        return corrupt(fmt::format("general.alignment is {}, which is not a power of two", gguf_.alignment));
    }
    if (gguf_.alignment > gguf_max_alignment) {
        return {Code::unsupported,
                fmt::format("general.alignment is {}; at most {} is supported", gguf_.alignment, gguf_max_alignment)};
    }
    return {};
}

Status Parser::tensor(uint64_t index) {
    GgufTensor tensor;
    tensor.name = string();
    const std::string name = printable(tensor.name);
    if (!in_.ok()) return ends_in(fmt::format("tensor table (entry {} of {})", index + 1, n_tensors_));
    if (tensor.name.size() >= GGML_MAX_NAME) return corrupt("the tensor name " + name + "… is too long");
    if (!tensor_names_.insert(tensor.name).second) return corrupt("two tensors are called " + name);
    LINKCPP_TRY(shape(tensor, name));
    tensor.type = in_.get<int32_t>();
    tensor.offset = in_.u64();
    if (!in_.ok()) return ends_in("tensor table: " + name);
    LINKCPP_TRY(size(tensor, name));
    // As in llama.cpp: one tensor after the other, each padded. So no two overlap.
    if (tensor.offset != expected_offset_) {
        return corrupt(fmt::format("tensor {} is said to be at {}, but {} is where the tensors before it end", name,
                                   tensor.offset, expected_offset_));
    }
    uint64_t padded = 0;
    if (!pad(tensor.bytes, gguf_.alignment, padded) ||
        __builtin_add_overflow(expected_offset_, padded, &expected_offset_)) {
        return corrupt("tensor " + name + " makes the file larger than 2^64 bytes");
    }
    gguf_.tensors.push_back(tensor);
    return {};
}

Status Parser::shape(GgufTensor& tensor, const std::string& name) {
    tensor.n_dims = in_.u32();
    if (in_.ok() && tensor.n_dims > tensor.ne.size()) {
        return corrupt(
            fmt::format("tensor {} has {} dimensions; at most {} are possible", name, tensor.n_dims, tensor.ne.size()));
    }
    for (uint32_t i = 0; in_.ok() && i < tensor.n_dims; ++i)
        tensor.ne[i] = in_.get<int64_t>();
    return {};
}

Status Parser::size(GgufTensor& tensor, const std::string& name) {
    auto bytes = tensor_bytes(tensor.type, tensor.ne);
    if (!bytes.ok()) return {bytes.status().code(), "tensor " + name + " " + bytes.status().message()};
    tensor.bytes = *bytes;
    return {};
}

Status Parser::data() {
    gguf_.data_offset = gguf_.data_end = in_.offset();
    if (gguf_.tensors.empty()) return {};
    if (!pad(in_.offset(), gguf_.alignment, gguf_.data_offset) || gguf_.data_offset > file_bytes_) {
        return corrupt("the file ends before its tensor data");
    }
    for (GgufTensor& tensor : gguf_.tensors) {
        uint64_t end = 0;
        if (__builtin_add_overflow(tensor.offset, gguf_.data_offset, &tensor.offset) ||
            __builtin_add_overflow(tensor.offset, tensor.bytes, &end) || end > file_bytes_) {
            return corrupt(fmt::format("tensor {} ends beyond the file ({} bytes): the file is cut short, download or "
                                       "copy it again",
                                       printable(tensor.name), file_bytes_));
        }
        gguf_.data_end = end;
    }
    return {};
}

}  // namespace

std::optional<uint64_t> GgufField::number() const {
    const auto natural = [](int64_t n) { return n < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(n)); };
    ByteReader in(value);
    switch (type) {
        case GgufType::u8: return in.u8();
        case GgufType::u16: return in.u16();
        case GgufType::u32: return in.u32();
        case GgufType::u64: return in.u64();
        case GgufType::i8: return natural(in.get<int8_t>());
        case GgufType::i16: return natural(in.get<int16_t>());
        case GgufType::i32: return natural(in.get<int32_t>());
        case GgufType::i64: return natural(in.get<int64_t>());
        default: return std::nullopt;
    }
}

std::optional<std::string_view> GgufField::text() const {
    if (type != GgufType::string) return std::nullopt;
    return view(value.subspan(8));
}

std::optional<std::vector<std::string_view>> GgufField::texts() const {
    if (type != GgufType::array || element != GgufType::string) return std::nullopt;
    std::vector<std::string_view> strings;
    ByteReader in(value);
    for (uint64_t i = 0; i < count; ++i)
        strings.push_back(view(in.take(static_cast<size_t>(in.u64()))));
    return strings;
}

const GgufField* Gguf::find(std::string_view key) const {
    const auto found = field_index.find(key);
    return found == field_index.end() ? nullptr : &fields[found->second];
}

std::optional<uint64_t> Gguf::number(std::string_view key) const {
    const GgufField* field = find(key);
    return field ? field->number() : std::nullopt;
}

std::optional<std::string_view> Gguf::text(std::string_view key) const {
    const GgufField* field = find(key);
    return field ? field->text() : std::nullopt;
}

Result<Gguf> parse_gguf(ByteSpan head, uint64_t file_bytes) { return Parser(head, file_bytes).run(); }

Result<uint64_t> tensor_bytes(int type, const std::array<int64_t, 4>& ne) {
    int64_t elements = 1;
    for (const int64_t size : ne) {
        if (size < 0) return corrupt("has a negative size");
        if (__builtin_mul_overflow(elements, size, &elements)) return corrupt("has more than 2^63 elements");
    }
    if (type < 0 || type >= GGML_TYPE_COUNT)
        return Status(Code::unsupported, fmt::format("has the unknown type {}", type));
    const int64_t block = ggml_blck_size(static_cast<ggml_type>(type));
    const size_t block_bytes = ggml_type_size(static_cast<ggml_type>(type));
    if (block <= 0 || block_bytes == 0)
        return Status(Code::unsupported, fmt::format("has the type {}, which is not used any more", type));
    if (ne[0] % block != 0) {
        return corrupt(fmt::format("has rows of {} elements, not a multiple of the block size {} of {}", ne[0], block,
                                   tensor_type_name(type)));
    }
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(elements / block), static_cast<uint64_t>(block_bytes), &bytes))
        return corrupt("has more than 2^64 bytes");
    return bytes;
}

const char* tensor_type_name(int type) {
    return type >= 0 && type < GGML_TYPE_COUNT ? ggml_type_name(static_cast<ggml_type>(type)) : "?";
}

}  // namespace linkcpp::moe
