#include "moe/model_file.h"

#include "moe/expert_tensor.h"
#include "moe/hole_marker.h"
#include "moe/model_parts.h"
#include "moe/slice_format.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <mutex>

namespace linkcpp::moe {

namespace {

Status corrupt(std::string message) { return {Code::corrupt, std::move(message)}; }

int small_number(const Gguf& gguf, const std::string& key, uint64_t largest) {
    return static_cast<int>(std::min(gguf.number(key).value_or(0), largest));
}

}  // namespace

struct ModelFile::Impl {
    Status read(const std::string& path);
    Status read_info();
    Status read_tensors();
    Status read_marker(ExpertTensor& tensor, ByteSpan data);
    Status group_layers();
    void derive_missing_info();
    /// By name, so that a copy of one of our tensors will do.
    size_t index_of(const ExpertTensor& tensor) const { return by_name.at(tensor.name); }
    Result<Digest> hash_slab(const ExpertTensor& tensor, int expert) const;

    std::vector<ModelPart> parts;
    ModelInfo info;
    std::vector<ModelLayer> layers;
    std::vector<ExpertTensor> tensors;
    std::vector<SourceRange> sources;  // of tensors, by index
    std::map<ExpertTensorName, size_t> by_name;

    mutable std::mutex digests_mutex;
    // Protected by digests_mutex: slab digests that were computed one by one, by tensor and expert.
    mutable std::map<std::pair<size_t, int>, Digest> known_digests;
};

Status ModelFile::Impl::read(const std::string& path) {
    auto opened = open_model_parts(path);
    if (!opened.ok()) return opened.status();
    parts = std::move(*opened);
    const std::string& first = parts.front().file.path();
    LINKCPP_TRY(read_info().in(first));
    LINKCPP_TRY(read_tensors());
    LINKCPP_TRY(group_layers().in(first));
    derive_missing_info();
    return {};
}

Status ModelFile::Impl::read_info() {
    const Gguf& gguf = parts.front().gguf;
    if (gguf.find(slice_key::version)) {
        return {Code::invalid_argument, "this is a slice, not a model; name the model that it was made from"};
    }
    const auto architecture = gguf.text("general.architecture");
    if (!architecture) return {Code::invalid_argument, "not a model: it has no general.architecture"};
    info.architecture = *architecture;
    info.name = gguf.text("general.name").value_or("");
    const std::string prefix = info.architecture + ".";
    const auto n_layer = gguf.number(prefix + "block_count");
    if (!n_layer) return {Code::invalid_argument, "not a language model: it has no " + prefix + "block_count"};
    if (*n_layer > max_layers) return corrupt(fmt::format("{} layers are too many", *n_layer));
    info.n_layer = static_cast<int>(*n_layer);
    info.n_embd = small_number(gguf, prefix + "embedding_length", INT32_MAX);
    info.n_expert = small_number(gguf, prefix + "expert_count", max_experts);
    info.n_expert_used = small_number(gguf, prefix + "expert_used_count", max_experts);
    info.n_ff_exp = small_number(gguf, prefix + "expert_feed_forward_length", INT32_MAX);
    info.n_files = static_cast<int>(parts.size());
    Sha256 hash;
    for (const ModelPart& part : parts)
        hash.update(part.file.bytes().first(static_cast<size_t>(part.gguf.data_offset)));
    info.fingerprint = hash.finish();
    return {};
}

Status ModelFile::Impl::read_tensors() {
    for (size_t part = 0; part < parts.size(); ++part) {
        const MappedFile& file = parts[part].file;
        for (const GgufTensor& entry : parts[part].gguf.tensors) {
            info.n_bytes += entry.bytes;
            auto parsed = expert_tensor(entry);
            if (!parsed.ok()) return parsed.status().in(file.path());
            if (!*parsed) continue;
            ExpertTensor tensor = std::move(**parsed);
            if (tensor.name.layer >= info.n_layer) {
                return corrupt(
                    fmt::format("{}: {} in a model of {} layers", file.path(), tensor.name.str(), info.n_layer));
            }
            info.n_bytes_experts += entry.bytes;
            const auto data = file.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
            LINKCPP_TRY(read_marker(tensor, data).in(file.path() + ": " + tensor.name.str()));
            if (!by_name.emplace(tensor.name, tensors.size()).second) {
                return corrupt(fmt::format("{}: {} is in two parts of the model", file.path(), tensor.name.str()));
            }
            sources.push_back({static_cast<int>(part), entry.offset, entry.bytes});
            tensors.push_back(std::move(tensor));
        }
    }
    return {};
}

Status ModelFile::Impl::read_marker(ExpertTensor& tensor, ByteSpan data) {
    auto marker = decode_hole_marker(data);
    if (!marker.ok()) return marker.status();
    if (!*marker) {
        tensor.data = data;
        return {};
    }
    info.sparse = true;
    if ((*marker)->kind != tensor.name.kind.code() || (*marker)->layer != static_cast<uint32_t>(tensor.name.layer) ||
        (*marker)->digests.size() != static_cast<size_t>(tensor.n_slabs)) {
        return corrupt("has the hole marker of another tensor");
    }
    if ((*marker)->model_fingerprint != info.fingerprint)
        return {Code::mismatch, "has the hole marker of another model"};
    tensor.digests = std::move((*marker)->digests);
    return {};
}

Status ModelFile::Impl::group_layers() {
    layers.resize(static_cast<size_t>(info.n_layer));
    for (int i = 0; i < info.n_layer; ++i)
        layers[static_cast<size_t>(i)].layer = i;
    for (const auto& [name, index] : by_name) {
        const ExpertTensor& tensor = tensors[index];
        ModelLayer& layer = layers[static_cast<size_t>(name.layer)];
        if (layer.n_expert != 0 && layer.n_expert != tensor.n_slabs) {
            return corrupt(fmt::format("layer {} has tensors of {} and of {} experts", name.layer, layer.n_expert,
                                       tensor.n_slabs));
        }
        layer.n_expert = tensor.n_slabs;
        layer.tensors.push_back(&tensor);
    }
    return {};
}

void ModelFile::Impl::derive_missing_info() {
    for (const ExpertTensor& tensor : tensors) {
        info.n_expert = std::max(info.n_expert, tensor.n_slabs);
        if (tensor.name.kind == TensorKind{Matrix::down, Role::weight}) {
            if (info.n_ff_exp == 0) info.n_ff_exp = static_cast<int>(std::min<int64_t>(tensor.ne[0], INT32_MAX));
            if (info.n_embd == 0) info.n_embd = static_cast<int>(std::min<int64_t>(tensor.ne[1], INT32_MAX));
        }
    }
}

Result<ModelFile> ModelFile::open(const std::string& path) {
    auto impl = std::make_unique<Impl>();
    LINKCPP_TRY(impl->read(path));
    return ModelFile(std::move(impl));
}

ModelFile::ModelFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

const ModelInfo& ModelFile::info() const { return impl_->info; }
const std::vector<ModelLayer>& ModelFile::layers() const { return impl_->layers; }
const std::vector<ExpertTensor>& ModelFile::expert_tensors() const { return impl_->tensors; }
const MappedFile& ModelFile::file(int index) const { return impl_->parts[static_cast<size_t>(index)].file; }
const Gguf& ModelFile::gguf(int index) const { return impl_->parts[static_cast<size_t>(index)].gguf; }

const ExpertTensor* ModelFile::find(const ExpertTensorName& name) const {
    const auto found = impl_->by_name.find(name);
    return found == impl_->by_name.end() ? nullptr : &impl_->tensors[found->second];
}

SourceRange ModelFile::source(const ExpertTensor& tensor, int first, int count) const {
    const SourceRange& whole = impl_->sources[impl_->index_of(tensor)];
    return {whole.file, whole.offset + static_cast<uint64_t>(first) * tensor.slab_bytes,
            static_cast<uint64_t>(count) * tensor.slab_bytes};
}

Result<Digest> ModelFile::Impl::hash_slab(const ExpertTensor& tensor, int expert) const {
    const SourceRange& whole = sources[index_of(tensor)];
    return hash_range(parts[static_cast<size_t>(whole.file)].file,
                      whole.offset + static_cast<uint64_t>(expert) * tensor.slab_bytes, tensor.slab_bytes);
}

Result<Digest> ModelFile::slab_digest(const ExpertTensor& tensor, int expert) const {
    if (expert < 0 || expert >= tensor.n_slabs) {
        return Status(Code::not_found, fmt::format("{} has no expert {}", tensor.name.str(), expert));
    }
    if (!tensor.digests.empty()) return tensor.digests[static_cast<size_t>(expert)];
    const auto key = std::pair(impl_->index_of(tensor), expert);
    {
        std::lock_guard lock(impl_->digests_mutex);
        const auto found = impl_->known_digests.find(key);
        if (found != impl_->known_digests.end()) return found->second;
    }
    auto digest = impl_->hash_slab(tensor, expert);
    if (digest.ok()) {
        std::lock_guard lock(impl_->digests_mutex);
        impl_->known_digests.emplace(key, *digest);
    }
    return digest;
}

Status ModelFile::compute_digests(const Progress& progress) {
    uint64_t done = 0;
    for (ExpertTensor& tensor : impl_->tensors) {
        std::vector<Digest> digests;
        for (int expert = 0; expert < tensor.n_slabs; ++expert) {
            auto digest = slab_digest(tensor, expert);
            if (!digest.ok()) return digest.status();
            digests.push_back(*digest);
            done += tensor.slab_bytes;
            if (progress) progress(done, impl_->info.n_bytes_experts);
        }
        tensor.digests = std::move(digests);
    }
    return {};
}

}  // namespace linkcpp::moe
