#include "moe/slice_file.h"

#include "moe/expert_tensor.h"
#include "moe/gguf.h"
#include "moe/mapped_file.h"
#include "moe/slice_format.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

Status corrupt(std::string message) { return {Code::corrupt, std::move(message)}; }

Bytes digest_leaf(const ExpertTensor& tensor, int expert, const Digest& slab) {
    ByteWriter leaf;
    leaf.u32(static_cast<uint32_t>(tensor.name.layer));
    leaf.u8(tensor.name.kind.code());
    leaf.u32(static_cast<uint32_t>(expert));
    leaf.u32(static_cast<uint32_t>(tensor.type));
    leaf.u64(static_cast<uint64_t>(tensor.ne[0]));
    leaf.u64(static_cast<uint64_t>(tensor.ne[1]));
    leaf.raw(slab.bytes);
    return leaf.take();
}

bool in_order(const ExpertTensor* a, const ExpertTensor* b) {
    return std::pair(a->name.layer, a->name.kind.code()) < std::pair(b->name.layer, b->name.kind.code());
}

Result<int> read_number(const Gguf& gguf, const char* key, int largest) {
    const auto value = gguf.number(key);
    if (!value) return Status(Code::corrupt, fmt::format("metadata {} is missing or not a number", key));
    if (*value > static_cast<uint64_t>(largest))
        return Status(Code::corrupt, fmt::format("metadata {} is {}", key, *value));
    return static_cast<int>(*value);
}

Result<Digest> read_digest(const Gguf& gguf, const char* key) {
    const auto text = gguf.text(key);
    const auto digest = text ? parse_digest(*text) : std::nullopt;
    if (!digest) return Status(Code::corrupt, fmt::format("metadata {} is missing or not a digest", key));
    return *digest;
}

Result<SliceInfo> read_info(const Gguf& gguf) {
    SliceInfo info;
    info.architecture = gguf.text("general.architecture").value_or("");
    info.model_name = gguf.text("general.name").value_or("");
    const struct {
        const char* key;
        int largest;
        int& value;
    } numbers[] = {
        {slice_key::layer_begin, max_layers, info.layer_begin},
        {slice_key::layer_end, max_layers, info.layer_end},
        {slice_key::expert_begin, max_experts, info.expert_begin},
        {slice_key::expert_end, max_experts, info.expert_end},
        {slice_key::n_expert, max_experts, info.n_expert},
        {slice_key::n_expert_used, max_experts, info.n_expert_used},
        {slice_key::n_embd, INT32_MAX, info.n_embd},
    };
    for (const auto& number : numbers) {
        auto value = read_number(gguf, number.key, number.largest);
        if (!value.ok()) return value.status();
        number.value = *value;
    }
    auto fingerprint = read_digest(gguf, slice_key::fingerprint), digest = read_digest(gguf, slice_key::digest);
    if (!fingerprint.ok()) return fingerprint.status();
    if (!digest.ok()) return digest.status();
    info.model_fingerprint = *fingerprint;
    info.digest = *digest;
    if (info.layer_begin >= info.layer_end || info.expert_begin >= info.expert_end || info.expert_end > info.n_expert) {
        return Status(Code::corrupt,
                      fmt::format("its ranges make no sense: layers {}:{}, experts {}:{} of {}", info.layer_begin,
                                  info.layer_end, info.expert_begin, info.expert_end, info.n_expert));
    }
    return info;
}

Status read_digests(const Gguf& gguf, ExpertTensor& tensor) {
    const GgufField* field = gguf.find(slice_key::digests(tensor.name.str()));
    const auto texts = field ? field->texts() : std::nullopt;
    if (!texts || texts->size() != static_cast<size_t>(tensor.n_slabs)) {
        return corrupt(fmt::format("{} has {} experts, but not as many digests", tensor.name.str(), tensor.n_slabs));
    }
    for (std::string_view text : *texts) {
        const auto digest = parse_digest(text);
        if (!digest) return corrupt(tensor.name.str() + " has a digest that is not one");
        tensor.digests.push_back(*digest);
    }
    return {};
}

Result<ExpertTensor> read_tensor(const Gguf& gguf, const GgufTensor& entry, const SliceInfo& info, ByteSpan file) {
    auto parsed = expert_tensor(entry);
    if (!parsed.ok()) return parsed.status();
    if (!*parsed) return Status(Code::corrupt, "a slice with a tensor that is not one of experts");
    ExpertTensor tensor = std::move(**parsed);
    if (tensor.name.layer < info.layer_begin || tensor.name.layer >= info.layer_end) {
        return Status(Code::corrupt, tensor.name.str() + " is outside of the slice's layers");
    }
    if (tensor.n_slabs != info.expert_end - info.expert_begin) {
        return Status(Code::corrupt, fmt::format("{} holds {} experts, the slice {}", tensor.name.str(), tensor.n_slabs,
                                                 info.expert_end - info.expert_begin));
    }
    LINKCPP_TRY(read_digests(gguf, tensor));
    tensor.data = file.subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
    return tensor;
}

}  // namespace

Digest slice_digest(const std::vector<ExpertTensor>& tensors, int expert_begin) {
    std::vector<const ExpertTensor*> order;
    for (const ExpertTensor& tensor : tensors)
        order.push_back(&tensor);
    std::sort(order.begin(), order.end(), in_order);
    std::vector<Bytes> leaves;
    for (const ExpertTensor* tensor : order) {
        for (size_t i = 0; i < tensor->digests.size(); ++i) {
            leaves.push_back(digest_leaf(*tensor, expert_begin + static_cast<int>(i), tensor->digests[i]));
        }
    }
    return merkle_root(leaves);
}

struct SliceFile::Impl {
    explicit Impl(MappedFile mapped) : file(std::move(mapped)) {}

    Status read();

    MappedFile file;
    SliceInfo info;
    std::vector<ExpertTensor> tensors;
};

Status SliceFile::Impl::read() {
    auto parsed = parse_gguf(file.bytes(), file.bytes().size());
    if (!parsed.ok()) return parsed.status();
    const Gguf& gguf = *parsed;
    const auto version = gguf.number(slice_key::version);
    if (!version) return {Code::invalid_argument, "a GGUF file, but not a slice; make one with `linkcpp slice`"};
    if (*version != slice_key::current_version) {
        return {Code::unsupported,
                fmt::format("slice format {}; this program reads format {}", *version, slice_key::current_version)};
    }
    auto read_result = read_info(gguf);
    if (!read_result.ok()) return read_result.status();
    info = *read_result;
    for (const GgufTensor& entry : gguf.tensors) {
        auto tensor = read_tensor(gguf, entry, info, file.bytes());
        if (!tensor.ok()) return tensor.status();
        tensors.push_back(std::move(*tensor));
    }
    if (tensors.empty()) return corrupt("a slice without experts");
    // Slices are written by us, so unlike models they have exactly the size that their header says.
    const uint64_t size = (gguf.data_end + gguf.alignment - 1) / gguf.alignment * gguf.alignment;
    if (size != file.bytes().size()) {
        return corrupt(fmt::format("has {} bytes, its header says {}", file.bytes().size(), size));
    }
    if (slice_digest(tensors, info.expert_begin) != info.digest) return corrupt("its digest is not that of its slabs");
    return {};
}

Result<SliceFile> SliceFile::open(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file.ok()) return file.status();
    auto impl = std::make_unique<Impl>(std::move(*file));
    LINKCPP_TRY(impl->read().in(path));
    return SliceFile(std::move(impl));
}

SliceFile::SliceFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SliceFile::SliceFile(SliceFile&&) noexcept = default;
SliceFile& SliceFile::operator=(SliceFile&&) noexcept = default;
SliceFile::~SliceFile() = default;

const std::string& SliceFile::path() const { return impl_->file.path(); }
const SliceInfo& SliceFile::info() const { return impl_->info; }
const std::vector<ExpertTensor>& SliceFile::tensors() const { return impl_->tensors; }
uint64_t SliceFile::file_bytes() const { return impl_->file.bytes().size(); }

Status SliceFile::read(const ExpertTensor& tensor, size_t slab, std::span<uint8_t> out) const {
    const auto begin = static_cast<uint64_t>(tensor.data.data() - impl_->file.bytes().data());
    LINKCPP_TRY(impl_->file.read_at(begin + slab * tensor.slab_bytes, out));
    if (sha256(out) == tensor.digests[slab]) return {};
    return {Code::corrupt,
            fmt::format("expert {} of {} is damaged: its bytes do not match their digest; get the slice again",
                        info().expert_begin + static_cast<int>(slab), tensor.name.str())};
}

Status SliceFile::verify(const Progress& progress) const {
    uint64_t done = 0, total = 0;
    for (const ExpertTensor& tensor : tensors())
        total += tensor.data.size();
    Bytes buffer;
    for (const ExpertTensor& tensor : tensors()) {
        buffer.resize(tensor.slab_bytes);
        for (size_t slab = 0; slab < tensor.digests.size(); ++slab) {
            LINKCPP_TRY(read(tensor, slab, buffer).in(path()));
            done += tensor.slab_bytes;
            if (progress) progress(done, total);
        }
    }
    return {};
}

}  // namespace linkcpp::moe
