#include "client/pull_plan.h"

#include "moe/backbone_writer.h"
#include "moe/hole_marker.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::client {

namespace {

std::string target_of(const std::string& model, const std::string& rest) {
    return "/api/proxy/models/" + model + "/" + rest;
}

std::string slab_name(const moe::ExpertTensor& tensor, int expert) {
    return fmt::format("expert {} of {}", expert, tensor.name.str());
}

void add_slabs(const moe::ExpertTensor& tensor, int first_expert, uint64_t offset, std::vector<PullUnit>& units) {
    for (int i = 0; i < tensor.n_slabs; ++i) {
        units.push_back(
            {offset, tensor.slab_bytes, tensor.digests[static_cast<size_t>(i)], slab_name(tensor, first_expert + i)});
        offset += tensor.slab_bytes;
    }
}

Bytes marker_of(const moe::Manifest& manifest, const moe::ExpertTensor& tensor) {
    moe::HoleMarker marker;
    marker.model_fingerprint = manifest.fingerprint;
    marker.kind = tensor.name.kind.code();
    marker.layer = static_cast<uint32_t>(tensor.name.layer);
    marker.digests = tensor.digests;
    return moe::encode_hole_marker(marker);
}

}  // namespace

uint64_t PullFile::n_bytes_fetched() const {
    uint64_t sum = 0;
    for (const PullUnit& unit : units)
        sum += unit.bytes;
    return sum;
}

Digest PullFile::digest() const {
    ByteWriter out;
    out.u64(bytes);
    for (const PullUnit& unit : units) {
        out.u64(unit.offset);
        out.u64(unit.bytes);
        out.raw(unit.digest.bytes);
    }
    return sha256(out.bytes());
}

Result<PullFile> plan_slice_pull(const moe::Manifest& manifest, const std::string& model,
                                 const moe::SliceRequest& request, const std::string& path) {
    const auto plan = moe::plan_slice(moe::outline_of(manifest, model), request);
    if (!plan.ok()) return plan.status();
    const moe::SliceInfo& info = plan->info;
    PullFile file;
    file.path = path;
    file.target = target_of(model, fmt::format("expert-shard?layers={}:{}&experts={}:{}", info.layer_begin,
                                               info.layer_end, info.expert_begin, info.expert_end));
    file.bytes = plan->total_bytes;
    file.local.emplace_back(0, moe::slice_header(*plan).bytes);
    uint64_t offset = plan->header_bytes;
    auto tensor = plan->tensors.begin();
    for (const moe::SourceRange& range : plan->ranges) {
        if (range.file != moe::SourceRange::padding) add_slabs(*tensor++, info.expert_begin, offset, file.units);
        offset += range.bytes;
    }
    return file;
}

Result<std::vector<PullFile>> plan_backbone_pull(const moe::Manifest& manifest, const std::string& model,
                                                 const std::string& path) {
    const auto paths = moe::backbone_paths(path, static_cast<int>(manifest.files.size()));
    std::vector<PullFile> files;
    for (size_t i = 0; i < manifest.files.size(); ++i) {
        const moe::ManifestFile& of = manifest.files[i];
        PullFile file;
        file.path = paths[i];
        file.target = target_of(model, fmt::format("file?part={}", i));
        file.bytes = of.bytes;
        if (of.header_bytes > 0)
            file.units.push_back({0, of.header_bytes, of.header, fmt::format("the header of file {}", i)});
        files.push_back(std::move(file));
    }
    for (const moe::ManifestTensor& tensor : manifest.tensors) {
        PullFile& file = files[static_cast<size_t>(tensor.file)];
        const auto expert = tensor.expert();
        if (!expert.ok()) return expert.status();
        if (tensor.bytes == 0) continue;
        if (!*expert) {
            file.units.push_back({tensor.offset, tensor.bytes, tensor.digests[0], tensor.name});
        } else if (moe::becomes_hole(**expert)) {
            file.local.emplace_back(tensor.offset, marker_of(manifest, **expert));
        } else {
            add_slabs(**expert, 0, tensor.offset, file.units);
        }
    }
    return files;
}

}  // namespace linkcpp::client
