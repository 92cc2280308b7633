#include "backend/model_source.h"

#include "base/log.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>

namespace linkcpp::backend {

std::string file_mapped_at(const void* address) {
    std::ifstream maps("/proc/self/maps");
    const auto wanted = reinterpret_cast<uintptr_t>(address);
    for (std::string line; std::getline(maps, line);) {
        uintptr_t begin = 0, end = 0;
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2 || wanted < begin || wanted >= end)
            continue;
        const size_t path = line.find('/');
        return path == std::string::npos ? "" : line.substr(path);
    }
    return "";
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
    if (mapped_path_.empty()) mapped_path_ = file_mapped_at(data.data());
    if (mapped_path_.empty() && tensor.digests.empty()) {
        // The loader reads files into memory of its own (no mmap): this is the only time that the bytes are seen.
        read_without_file_ = true;
        for (int e = 0; e < n_expert; ++e) {
            tensor.digests.push_back(
                sha256(data.subspan(static_cast<size_t>(e) * tensor.slab_bytes, tensor.slab_bytes)));
        }
    }
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

Result<Digest> ModelSource::digest(int layer_begin, int layer_end, int expert_begin, int expert_end) const {
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

}  // namespace linkcpp::backend
