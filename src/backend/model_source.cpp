#include "backend/model_source.h"

#include "base/log.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

namespace linkcpp::backend {

namespace {

/// The loader maps a model and has all of it read at once. Nobody looks at experts there again (local ones are copied, by
/// reading the file), so their pages need not stay in this process; the kernel keeps them in its cache while it has room.
void release_pages(const FileMapping& mapping, ByteSpan data) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto begin = (reinterpret_cast<uintptr_t>(data.data()) + page - 1) / page * page;
    const auto end = std::min(reinterpret_cast<uintptr_t>(data.data() + data.size()), mapping.end) / page * page;
    // What is written to could be lost; a loader's mapping is not.
    if (!mapping.read_only || begin < mapping.begin || begin >= end) return;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that was rounded up
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

std::optional<FileMapping> file_mapped_at(const void* address) {
    std::ifstream maps("/proc/self/maps");
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    for (std::string line; std::getline(maps, line);) {
        FileMapping mapping;
        std::array<char, 5> permissions{};
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &mapping.begin, &mapping.end,
                        permissions.data()) != 3 ||
            wanted < mapping.begin || wanted >= mapping.end)
            continue;
        const size_t path = line.find('/');
        if (path == std::string::npos) return std::nullopt;
        mapping.path = line.substr(path);
        mapping.read_only = permissions[0] == 'r' && permissions[1] == '-';
        return mapping;
    }
    return std::nullopt;
}

void ModelSource::loaded(const moe::ExpertTensor& shape, int n_expert, ByteSpan data) {
    moe::ExpertTensor tensor = shape;
    layers_[tensor.name.layer] = std::max(layers_[tensor.name.layer], n_expert);
    auto marker = moe::decode_hole_marker(data);
    if (!marker.ok()) {
        log_warning("{}: {}; its experts are taken for missing", tensor.name.str(), marker.status().message());
    } else if (*marker) {
        marker_fingerprint_ = (*marker)->model_fingerprint;
        tensor.digests = (*marker)->digests;
    }
    const auto mapping = file_mapped_at(data.data());
    if (mapping && mapped_path_.empty()) mapped_path_ = mapping->path;
    if (mapped_path_.empty() && tensor.digests.empty()) {
        // The loader reads files into memory of its own (no mmap): this is the only time that the bytes are seen.
        read_without_file_ = true;
        for (int e = 0; e < n_expert; ++e) {
            tensor.digests.push_back(
                sha256(data.subspan(static_cast<size_t>(e) * tensor.slab_bytes, tensor.slab_bytes)));
        }
    }
    if (mapping) release_pages(*mapping, data);
    loaded_.push_back(std::move(tensor));
}

void ModelSource::seal(const std::string& path) {
    const std::string chosen = path.empty() ? mapped_path_ : path;
    if (chosen.empty()) {
        no_weights_ = "the model was loaded without mmap, so its file is not known; name it with LINKCPP_MODEL";
        return;
    }
    const Status status = adopt(chosen);
    if (!status.ok()) {
        no_weights_ = chosen + ": " + status.message();
        log_warning("no local experts: {}", no_weights_);
    } else if (file_->info().sparse) {
        no_weights_ = chosen + " is a sparse backbone file";
    }
}

Status ModelSource::adopt(const std::string& path) {
    auto file = moe::ModelFile::open(path);
    if (!file.ok()) return file.status();
    if (marker_fingerprint_ && *marker_fingerprint_ != file->info().fingerprint) {
        return {Code::mismatch, "it is another model than the one that is loaded"};
    }
    for (const moe::ExpertTensor& tensor : loaded_) {
        const moe::ExpertTensor* same = file->find(tensor.name);
        if (same == nullptr || same->type != tensor.type || same->ne != tensor.ne ||
            same->slab_bytes != tensor.slab_bytes) {
            return {Code::mismatch, "its " + tensor.name.str() + " is not the one that is loaded"};
        }
        // One slab of each tensor that the loader showed: the headers of two models can agree.
        if (read_without_file_ && !tensor.digests.empty()) {
            const auto digest = file->slab_digest(*same, 0);
            if (!digest.ok()) return digest.status();
            if (*digest != tensor.digests[0])
                return {Code::mismatch, "its " + tensor.name.str() + " has other weights than the one that is loaded"};
        }
    }
    file_ = std::move(*file);
    for (const moe::ModelLayer& layer : file_->layers()) {  // also layers that are not ours: workers may hold them too
        if (layer.n_expert > 0) layers_[layer.layer] = layer.n_expert;
    }
    return {};
}

std::vector<const moe::ExpertTensor*> ModelSource::tensors(int layer) const {
    std::vector<const moe::ExpertTensor*> found;
    for (const moe::ExpertTensor& tensor : file_ ? file_->expert_tensors() : loaded_) {
        if (tensor.name.layer == layer) found.push_back(&tensor);
    }
    return found;
}

int ModelSource::n_expert(int layer) const {
    const auto found = layers_.find(layer);
    return found == layers_.end() ? 0 : found->second;
}

Result<Digest> ModelSource::digest(int layer_begin, int layer_end, int expert_begin, int expert_end,
                                   std::atomic<uint64_t>* progress) const {
    if (layer_begin < 0 || layer_begin >= layer_end || layer_end > moe::max_layers || expert_begin < 0 ||
        expert_begin >= expert_end) {
        return {Code::not_found, "its ranges are empty"};
    }
    std::vector<moe::ExpertTensor> slice;
    for (const moe::ExpertTensor& tensor : file_ ? file_->expert_tensors() : loaded_) {
        if (tensor.name.layer < layer_begin || tensor.name.layer >= layer_end) continue;
        const int end = std::min(expert_end, n_expert(tensor.name.layer));
        if (end <= expert_begin) continue;
        moe::ExpertTensor part = tensor;
        part.data = {};
        part.digests.clear();
        for (int e = expert_begin; e < end; ++e) {
            if (progress != nullptr) *progress += 1;
            if (file_) {
                const auto digest = file_->slab_digest(tensor, e);
                if (!digest.ok()) return digest.status();
                part.digests.push_back(*digest);
            } else if (static_cast<size_t>(e) < tensor.digests.size()) {
                part.digests.push_back(tensor.digests[static_cast<size_t>(e)]);
            } else {
                return {Code::unsupported, "the digests of this model's experts are not known"};
            }
        }
        slice.push_back(std::move(part));
    }
    if (slice.empty()) return {Code::not_found, "this model has no such layers or experts"};
    return moe::slice_digest(slice, expert_begin);
}

std::string ModelSource::fingerprint() const {
    if (marker_fingerprint_) return marker_fingerprint_->hex();
    return file_ ? file_->info().fingerprint.hex() : "";
}

}  // namespace linkcpp::backend
