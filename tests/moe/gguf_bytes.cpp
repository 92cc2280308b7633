#include "moe/gguf_bytes.h"

#include <algorithm>

namespace linkcpp::test {

void GgufBytes::put_string(ByteWriter& out, std::string_view text) {
    out.u64(text.size());
    out.raw({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

GgufBytes& GgufBytes::field(std::string_view key, moe::GgufType type, const Bytes& value) {
    ByteWriter out;
    put_string(out, key);
    out.u32(static_cast<uint32_t>(type));
    out.raw(value);
    fields.push_back(out.take());
    return *this;
}

GgufBytes& GgufBytes::u32(std::string_view key, uint32_t value) {
    ByteWriter out;
    out.u32(value);
    return field(key, moe::GgufType::u32, out.take());
}

GgufBytes& GgufBytes::u16(std::string_view key, uint16_t value) {
    ByteWriter out;
    out.u16(value);
    return field(key, moe::GgufType::u16, out.take());
}

GgufBytes& GgufBytes::text(std::string_view key, std::string_view value) {
    ByteWriter out;
    put_string(out, value);
    return field(key, moe::GgufType::string, out.take());
}

GgufBytes& GgufBytes::f32_tensor(const std::string& name, std::vector<int64_t> ne, uint8_t seed) {
    size_t size = sizeof(float);
    for (int64_t n : ne)
        size *= static_cast<size_t>(n);
    Bytes data(size);
    for (size_t i = 0; i < size; ++i)
        data[i] = static_cast<uint8_t>(seed + i * 7 + i / 256);
    tensors.push_back({name, std::move(ne), 0, std::move(data), {}, {}});
    return *this;
}

Bytes GgufBytes::header() const {
    ByteWriter out;
    out.raw({reinterpret_cast<const uint8_t*>(magic.data()), magic.size()});
    out.u32(version);
    out.u64(n_tensors.value_or(tensors.size()));
    out.u64(n_fields.value_or(fields.size()));
    for (const Bytes& entry : fields)
        out.raw(entry);
    uint64_t offset = 0;
    for (const Tensor& tensor : tensors) {
        put_string(out, tensor.name);
        out.u32(tensor.n_dims.value_or(static_cast<uint32_t>(tensor.ne.size())));
        for (int64_t n : tensor.ne)
            out.put(n);
        out.put(tensor.type);
        out.u64(tensor.offset.value_or(offset));
        offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    out.zeros((alignment - out.size() % alignment) % alignment);
    return out.take();
}

Bytes GgufBytes::bytes() const {
    ByteWriter out;
    out.raw(header());
    for (const Tensor& tensor : tensors) {
        out.raw(tensor.data);
        out.zeros((alignment - tensor.data.size() % alignment) % alignment);
    }
    return out.take();
}

GgufBytes GgufBytes::from(const Bytes& file) {
    const auto parsed = moe::parse_gguf(file, file.size());
    GgufBytes gguf;
    gguf.alignment = parsed->alignment;
    for (const moe::GgufField& entry : parsed->fields)
        gguf.fields.emplace_back(entry.raw.begin(), entry.raw.end());
    for (const moe::GgufTensor& entry : parsed->tensors) {
        const auto begin = file.begin() + static_cast<long>(entry.offset);
        gguf.tensors.push_back({std::string(entry.name),
                                std::vector<int64_t>(entry.ne.begin(), entry.ne.begin() + entry.n_dims),
                                entry.type,
                                Bytes(begin, begin + static_cast<long>(entry.bytes)),
                                {},
                                {}});
    }
    return gguf;
}

GgufBytes& GgufBytes::without(std::string_view key) {
    ByteWriter prefix;
    put_string(prefix, key);
    std::erase_if(fields, [&prefix](const Bytes& entry) {
        return entry.size() >= prefix.size() && std::equal(prefix.bytes().begin(), prefix.bytes().end(), entry.begin());
    });
    return *this;
}

std::vector<GgufBytes> split(const GgufBytes& whole, int n_parts) {
    std::vector<GgufBytes> parts(static_cast<size_t>(n_parts));
    parts[0].fields = whole.fields;
    for (size_t i = 0; i < whole.tensors.size(); ++i) {
        parts[i * parts.size() / whole.tensors.size()].tensors.push_back(whole.tensors[i]);
    }
    for (int i = 0; i < n_parts; ++i) {
        ByteWriter n_tensors;
        n_tensors.put(static_cast<int32_t>(whole.tensors.size()));
        GgufBytes& part = parts[static_cast<size_t>(i)];
        part.alignment = i == 0 ? whole.alignment : 32;
        part.u16("split.no", static_cast<uint16_t>(i)).u16("split.count", static_cast<uint16_t>(n_parts));
        part.field("split.tensors.count", moe::GgufType::i32, n_tensors.take());
    }
    return parts;
}

GgufBytes small_moe() {
    GgufBytes gguf;
    gguf.text("general.architecture", "testmoe").text("general.name", "Small").u32("testmoe.block_count", 2);
    gguf.u32("testmoe.embedding_length", 8).u32("testmoe.expert_count", 4).u32("testmoe.expert_used_count", 2);
    gguf.u32("testmoe.expert_feed_forward_length", 6);
    gguf.f32_tensor("token_embd.weight", {8, 16}, 3).f32_tensor("blk.0.ffn_up.weight", {8, 6}, 5);
    gguf.f32_tensor("blk.1.ffn_gate_inp.weight", {8, 4}, 9);
    gguf.f32_tensor("blk.1.ffn_down_exps.weight", {6, 8, 4}, 11).f32_tensor("blk.1.ffn_up_exps.weight", {8, 6, 4}, 13);
    gguf.f32_tensor("blk.1.ffn_gate_exps.weight", {8, 6, 4}, 17).f32_tensor("blk.1.ffn_up_exps.bias", {6, 4}, 19);
    gguf.f32_tensor("blk.1.ffn_down_exps.scale", {4}, 23).f32_tensor("output.weight", {8, 16}, 29);
    return gguf;
}

}  // namespace linkcpp::test
