#include "moe/manifest.h"

#include "moe/expert_tensor.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <set>

namespace linkcpp::moe {

namespace {

constexpr std::string_view magic = "linkcpp-manifest";
constexpr uint32_t current_version = 1;
constexpr std::string_view signed_text = "linkcpp manifest 1\n";
constexpr size_t max_name = 64;  // of a tensor, as in ggml
constexpr size_t max_files = UINT16_MAX, max_slice_metadata = 16 << 20;

Status corrupt(std::string message) { return {Code::corrupt, "the manifest is damaged: " + std::move(message)}; }

ByteSpan bytes_of(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

bool printable(char c) { return c >= 0x20 && c < 0x7f; }

/// Names travel as JSON and are shown to people: ASCII without control characters.
bool is_printable(std::string_view text) { return std::all_of(text.begin(), text.end(), printable); }

std::string made_printable(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return !printable(c); }, '?');
    return text.substr(0, UINT16_MAX);
}

Digest get_digest(ByteReader& in) {
    Digest digest;
    const ByteSpan raw = in.take(digest.bytes.size());
    std::copy(raw.begin(), raw.end(), digest.bytes.begin());
    return digest;
}

ManifestTensor get_tensor(ByteReader& in) {
    ManifestTensor tensor;
    tensor.name = in.string16();
    tensor.type = static_cast<int>(std::min<uint32_t>(in.u32(), INT32_MAX));
    tensor.n_dims = in.u32();
    for (uint32_t i = 0; in.ok() && i < tensor.n_dims; ++i) {
        const auto size = in.get<int64_t>();
        if (i < tensor.ne.size()) tensor.ne[i] = size;
    }
    tensor.file = static_cast<int>(std::min<uint32_t>(in.u32(), INT32_MAX));
    tensor.offset = in.u64();
    tensor.bytes = in.u64();
    const uint32_t n_digests = in.u32();
    for (uint32_t i = 0; in.ok() && i < n_digests; ++i)
        tensor.digests.push_back(get_digest(in));
    return tensor;
}

GgufTensor table_entry(const ManifestTensor& tensor) {
    return {tensor.name, tensor.type, tensor.n_dims, tensor.ne, tensor.offset, tensor.bytes};
}

Status check_tensor(const Manifest& manifest, const ManifestTensor& tensor, uint64_t& end) {
    const auto wrong = [&tensor](const std::string& what) { return corrupt("tensor " + tensor.name + " " + what); };
    if (tensor.name.size() >= max_name || !is_printable(tensor.name))
        return corrupt("the name of a tensor is not possible");
    if (tensor.n_dims > tensor.ne.size()) return wrong("has too many dimensions");
    const auto bytes = tensor_bytes(tensor.type, tensor.ne);
    if (!bytes.ok()) return wrong(bytes.status().message());
    if (*bytes != tensor.bytes) return wrong("has another size than its shape");
    const uint64_t file_bytes = manifest.files[static_cast<size_t>(tensor.file)].bytes;
    if (tensor.offset < end || tensor.offset > file_bytes || tensor.bytes > file_bytes - tensor.offset)
        return wrong("is not where it could be");
    end = tensor.offset + tensor.bytes;
    const auto expert = tensor.expert();
    if (!expert.ok()) return wrong(expert.status().message());
    if (*expert && (*expert)->name.layer >= static_cast<int>(manifest.n_layer)) return wrong("is of no layer");
    const size_t n_digests = *expert ? static_cast<size_t>((*expert)->n_slabs) : 1;
    return tensor.digests.size() == n_digests ? Status() : wrong("has another number of digests than of parts");
}

/// Bytes that belong to no tensor: alignment, and what a careless tool left at the end. They have to be zeros.
Status check_gap(const MappedFile& file, uint64_t begin, uint64_t end) {
    Bytes buffer(64 << 10);
    while (begin < end) {
        const std::span<uint8_t> piece(buffer.data(),
                                       static_cast<size_t>(std::min<uint64_t>(end - begin, buffer.size())));
        LINKCPP_TRY(file.read_at(begin, piece));
        if (std::any_of(piece.begin(), piece.end(), [](uint8_t byte) { return byte != 0; })) {
            return {
                Code::unsupported,
                fmt::format("{}: between bytes {} and {} there is something that is no tensor; write the model anew "
                            "with llama.cpp's tools",
                            file.path(), begin, end)};
        }
        begin += piece.size();
    }
    return {};
}

/// Makes the manifest of one model, file by file, each from its beginning to its end.
class Maker {
  public:
    Maker(const ModelFile& model, const Progress& progress, const std::atomic<bool>* cancelled)
        : model_(model), progress_(progress), cancelled_(cancelled), buffer_(1 << 20) {
        for (int i = 0; i < model.info().n_files; ++i)
            total_ += model.file(i).bytes().size();
    }

    Result<Manifest> make() {
        head();
        for (int i = 0; i < model_.info().n_files; ++i)
            LINKCPP_TRY(file(i));
        LINKCPP_TRY(check_manifest(manifest_));
        return std::move(manifest_);
    }

  private:
    void head() {
        const ModelInfo& info = model_.info();
        ModelOutline outline = outline_of(model_);
        manifest_.architecture = made_printable(info.architecture);
        manifest_.name = made_printable(info.name);
        manifest_.alignment = outline.alignment;
        manifest_.n_layer = static_cast<uint32_t>(info.n_layer);
        manifest_.n_embd = static_cast<uint32_t>(info.n_embd);
        manifest_.n_expert = static_cast<uint32_t>(info.n_expert);
        manifest_.n_expert_used = static_cast<uint32_t>(info.n_expert_used);
        manifest_.n_ff_exp = static_cast<uint32_t>(info.n_ff_exp);
        manifest_.fingerprint = info.fingerprint;
        manifest_.n_slice_metadata = outline.n_slice_metadata;
        manifest_.slice_metadata = std::move(outline.slice_metadata);
    }

    Result<Digest> hash(const MappedFile& source, uint64_t offset, uint64_t bytes) {
        Sha256 hash;
        while (bytes > 0) {
            if (cancelled_ && *cancelled_) return Status(Code::unavailable, "interrupted");
            const std::span<uint8_t> piece(buffer_.data(),
                                           static_cast<size_t>(std::min<uint64_t>(bytes, buffer_.size())));
            LINKCPP_TRY(source.read_at(offset, piece));
            hash.update(piece);
            offset += piece.size();
            bytes -= piece.size();
            done_ += piece.size();
            if (progress_) progress_(done_, total_);
        }
        return hash.finish();
    }

    Status file(int index) {
        const MappedFile& source = model_.file(index);
        const Gguf& gguf = model_.gguf(index);
        ManifestFile file{source.bytes().size(), gguf.data_offset, {}};
        auto header = hash(source, 0, file.header_bytes);
        if (!header.ok()) return header.status();
        file.header = *header;
        manifest_.files.push_back(file);
        uint64_t end = file.header_bytes;
        for (const GgufTensor& entry : gguf.tensors) {
            LINKCPP_TRY(check_gap(source, end, entry.offset));
            LINKCPP_TRY(tensor(index, entry));
            end = entry.offset + entry.bytes;
        }
        return check_gap(source, end, file.bytes);
    }

    Status tensor(int index, const GgufTensor& entry) {
        ManifestTensor tensor{
            std::string(entry.name), entry.type, entry.n_dims, entry.ne, index, entry.offset, entry.bytes, {}};
        const auto expert = expert_tensor(entry);
        if (!expert.ok()) return expert.status();
        const int n_parts = *expert ? (*expert)->n_slabs : 1;
        const uint64_t part_bytes = *expert ? (*expert)->slab_bytes : entry.bytes;
        for (int i = 0; i < n_parts; ++i) {
            auto digest = hash(model_.file(index), entry.offset + static_cast<uint64_t>(i) * part_bytes, part_bytes);
            if (!digest.ok()) return digest.status();
            tensor.digests.push_back(*digest);
        }
        manifest_.tensors.push_back(std::move(tensor));
        return {};
    }

    const ModelFile& model_;
    const Progress& progress_;
    const std::atomic<bool>* cancelled_;
    Bytes buffer_;
    uint64_t done_ = 0, total_ = 0;
    Manifest manifest_;
};

}  // namespace

Result<std::optional<ExpertTensor>> ManifestTensor::expert() const {
    auto found = expert_tensor(table_entry(*this));
    if (found.ok() && *found) (*found)->digests = digests;
    return found;
}

Result<Manifest> make_manifest(const ModelFile& model, const Progress& progress, const std::atomic<bool>* cancelled) {
    return Maker(model, progress, cancelled).make();
}

Status check_manifest(const Manifest& manifest) {
    if (!std::has_single_bit(manifest.alignment) || manifest.alignment > gguf_max_alignment)
        return corrupt("its alignment is not possible");
    if (manifest.n_layer > max_layers || manifest.n_expert > max_experts || manifest.n_expert_used > max_experts ||
        manifest.n_embd > INT32_MAX || manifest.n_ff_exp > INT32_MAX) {
        return corrupt("its numbers are too large");
    }
    if (!is_printable(manifest.architecture) || !is_printable(manifest.name))
        return corrupt("its name is not possible");
    if (manifest.files.empty() || manifest.files.size() > max_files)
        return corrupt("its number of files is not possible");
    if (manifest.slice_metadata.size() > max_slice_metadata || manifest.n_slice_metadata > gguf_max_entries)
        return corrupt("its metadata is too large");
    uint64_t total = 0;
    for (const ManifestFile& file : manifest.files) {
        if (file.bytes == 0 || file.header_bytes > file.bytes || file.bytes > INT64_MAX ||
            __builtin_add_overflow(total, file.bytes, &total)) {
            return corrupt("the size of a file is not possible");
        }
    }
    std::set<std::string_view> names;
    int file = -1;
    uint64_t end = 0;
    for (const ManifestTensor& tensor : manifest.tensors) {
        if (tensor.file < std::max(file, 0) || tensor.file >= static_cast<int>(manifest.files.size()))
            return corrupt("its tensors are not in the order of the files");
        if (tensor.file != file) end = manifest.files[static_cast<size_t>(tensor.file)].header_bytes;
        file = tensor.file;
        if (!names.insert(tensor.name).second) return corrupt("two tensors have the same name");
        LINKCPP_TRY(check_tensor(manifest, tensor, end));
    }
    return {};
}

Bytes encode_manifest(const Manifest& manifest) {
    ByteWriter out;
    out.raw(bytes_of(magic));
    out.u32(current_version);
    out.string16(manifest.architecture);
    out.string16(manifest.name);
    for (const uint32_t number : {manifest.alignment, manifest.n_layer, manifest.n_embd, manifest.n_expert,
                                  manifest.n_expert_used, manifest.n_ff_exp}) {
        out.u32(number);
    }
    out.raw(manifest.fingerprint.bytes);
    out.u32(manifest.n_slice_metadata);
    out.u32(static_cast<uint32_t>(manifest.slice_metadata.size()));
    out.raw(manifest.slice_metadata);
    out.u32(static_cast<uint32_t>(manifest.files.size()));
    for (const ManifestFile& file : manifest.files) {
        out.u64(file.bytes);
        out.u64(file.header_bytes);
        out.raw(file.header.bytes);
    }
    out.u32(static_cast<uint32_t>(manifest.tensors.size()));
    for (const ManifestTensor& tensor : manifest.tensors) {
        out.string16(tensor.name);
        out.u32(static_cast<uint32_t>(tensor.type));
        out.u32(tensor.n_dims);
        for (uint32_t i = 0; i < tensor.n_dims && i < tensor.ne.size(); ++i)
            out.put(tensor.ne[i]);
        out.u32(static_cast<uint32_t>(tensor.file));
        out.u64(tensor.offset);
        out.u64(tensor.bytes);
        out.u32(static_cast<uint32_t>(tensor.digests.size()));
        for (const Digest& digest : tensor.digests)
            out.raw(digest.bytes);
    }
    return out.take();
}

Result<Manifest> decode_manifest(ByteSpan bytes) {
    ByteReader in(bytes);
    const ByteSpan found = in.take(magic.size());
    if (!in.ok() || !std::equal(found.begin(), found.end(), bytes_of(magic).begin()))
        return corrupt("it does not begin as one");
    if (const uint32_t version = in.u32(); version != current_version)
        return Status(Code::unsupported, fmt::format("the manifest has version {}, not {}", version, current_version));
    Manifest manifest;
    manifest.architecture = in.string16();
    manifest.name = in.string16();
    for (uint32_t* number : {&manifest.alignment, &manifest.n_layer, &manifest.n_embd, &manifest.n_expert,
                             &manifest.n_expert_used, &manifest.n_ff_exp}) {
        *number = in.u32();
    }
    manifest.fingerprint = get_digest(in);
    manifest.n_slice_metadata = in.u32();
    const ByteSpan metadata = in.take(in.u32());
    manifest.slice_metadata.assign(metadata.begin(), metadata.end());
    // Counts are believed as far as there are bytes for them.
    for (uint32_t left = in.u32(); in.ok() && left > 0; --left) {
        ManifestFile file;
        file.bytes = in.u64();
        file.header_bytes = in.u64();
        file.header = get_digest(in);
        manifest.files.push_back(file);
    }
    for (uint32_t left = in.u32(); in.ok() && left > 0; --left)
        manifest.tensors.push_back(get_tensor(in));
    if (!in.done()) return corrupt(in.ok() ? "there is something behind its end" : "it is cut short");
    LINKCPP_TRY(check_manifest(manifest));
    return manifest;
}

Digest model_id(const Manifest& manifest) { return sha256(encode_manifest(manifest)); }

Bytes manifest_message(const Digest& model_id) {
    ByteWriter out;
    out.raw(bytes_of(signed_text));
    out.raw(model_id.bytes);
    return out.take();
}

ModelOutline outline_of(const Manifest& manifest, const std::string& source) {
    ModelOutline outline;
    outline.source = source;
    outline.alignment = manifest.alignment;
    outline.slice_metadata = manifest.slice_metadata;
    outline.n_slice_metadata = manifest.n_slice_metadata;
    ModelInfo& info = outline.info;
    info.architecture = manifest.architecture;
    info.name = manifest.name;
    info.n_layer = static_cast<int>(manifest.n_layer);
    info.n_embd = static_cast<int>(manifest.n_embd);
    info.n_expert = static_cast<int>(manifest.n_expert);
    info.n_expert_used = static_cast<int>(manifest.n_expert_used);
    info.n_ff_exp = static_cast<int>(manifest.n_ff_exp);
    info.fingerprint = manifest.fingerprint;
    info.n_files = static_cast<int>(manifest.files.size());
    std::vector<std::pair<ExpertTensor, SourceRange>> experts;
    for (const ManifestTensor& tensor : manifest.tensors) {
        info.n_bytes += tensor.bytes;
        auto expert = tensor.expert();
        if (!expert.ok() || !*expert) continue;
        info.n_bytes_experts += tensor.bytes;
        experts.emplace_back(std::move(**expert), SourceRange{tensor.file, tensor.offset, tensor.bytes});
    }
    std::sort(experts.begin(), experts.end(), [](const auto& a, const auto& b) {
        return std::pair(a.first.name.layer, a.first.name.kind.code()) <
               std::pair(b.first.name.layer, b.first.name.kind.code());
    });
    for (auto& [tensor, source_range] : experts) {
        outline.tensors.push_back(std::move(tensor));
        outline.sources.push_back(source_range);
    }
    return outline;
}

}  // namespace linkcpp::moe
