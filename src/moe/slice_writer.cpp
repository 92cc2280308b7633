#include "moe/slice_writer.h"

#include "moe/expert_tensor.h"
#include "moe/gguf_writer.h"
#include "moe/output_file.h"
#include "moe/slice_format.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

constexpr size_t piece_bytes = 1 << 20;

Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }

Status check_range(const char* what, int& begin, int& end, int count) {
    if (end < 0) end = count;
    if (begin >= 0 && begin < end && end <= count) return {};
    return invalid(
        fmt::format("{} {}:{} do not exist: the model has {} {}, so ranges lie within 0:{} and the end is exclusive",
                    what, begin, end, count, what, count));
}

/// Experts of a layer; 0 for one without.
int experts_of_layer(const ModelOutline& model, int layer) {
    const auto found = std::find_if(model.tensors.begin(), model.tensors.end(),
                                    [layer](const ExpertTensor& tensor) { return tensor.name.layer == layer; });
    return found == model.tensors.end() ? 0 : found->n_slabs;
}

Status check_request(const ModelOutline& model, SliceRequest& request) {
    const ModelInfo& info = model.info;
    const std::string& path = model.source;
    if (model.tensors.empty()) {
        return invalid(path + ": is a dense model: it has no experts, so there is nothing to slice");
    }
    if (info.sparse) {
        return invalid(path + ": is a backbone file: its experts were left out; slice the full model");
    }
    LINKCPP_TRY(check_range("layers", request.layer_begin, request.layer_end, info.n_layer));
    LINKCPP_TRY(check_range("experts", request.expert_begin, request.expert_end, info.n_expert));
    bool any = false;
    for (int i = request.layer_begin; i < request.layer_end; ++i) {
        const int n_expert = experts_of_layer(model, i);
        any = any || n_expert > 0;
        if (n_expert > 0 && n_expert < request.expert_end) {
            return invalid(
                fmt::format("layer {} has {} experts only; ask for experts within 0:{} or leave that layer out", i,
                            n_expert, n_expert));
        }
    }
    if (any) return {};
    return invalid(fmt::format("layers {}:{} have no experts (they are dense); see `linkcpp inspect`",
                               request.layer_begin, request.layer_end));
}

/// The header for these tensors. Digests that are missing are written as zeros: same length, to learn the size.
Bytes make_header(const SlicePlan& plan, const SliceInfo& info, const std::vector<ExpertTensor>& tensors) {
    GgufWriter out(plan.alignment);
    out.copy_all(plan.metadata, plan.n_metadata);
    const int n_held = info.expert_end - info.expert_begin;
    const auto number = [&out](const char* key, int value) { out.put_u32(key, static_cast<uint32_t>(value)); };
    number(slice_key::version, slice_key::current_version);
    number(slice_key::layer_begin, info.layer_begin);
    number(slice_key::layer_end, info.layer_end);
    number(slice_key::expert_begin, info.expert_begin);
    number(slice_key::expert_end, info.expert_end);
    number(slice_key::n_expert, info.n_expert);
    number(slice_key::n_expert_used, info.n_expert_used);
    number(slice_key::n_embd, info.n_embd);
    out.put_string(slice_key::fingerprint, info.model_fingerprint.hex());
    out.put_string(slice_key::digest, info.digest.hex());
    for (const ExpertTensor& tensor : tensors) {
        std::vector<std::string> digests(static_cast<size_t>(n_held), Digest().hex());
        for (size_t i = 0; i < tensor.digests.size(); ++i)
            digests[i] = tensor.digests[i].hex();
        out.put_strings(slice_key::digests(tensor.name.str()), digests);
        out.add_tensor(tensor.name.str(), tensor.type, tensor_dimensions(tensor, n_held),
                       tensor.slab_bytes * static_cast<uint64_t>(n_held));
    }
    return out.header();
}

SliceInfo plan_info(const ModelInfo& of, const SliceRequest& request) {
    SliceInfo info;
    info.architecture = of.architecture;
    info.model_name = of.name;
    info.layer_begin = request.layer_begin;
    info.layer_end = request.layer_end;
    info.expert_begin = request.expert_begin;
    info.expert_end = request.expert_end;
    info.n_expert = of.n_expert;
    info.n_expert_used = of.n_expert_used;
    info.n_embd = of.n_embd;
    info.model_fingerprint = of.fingerprint;
    return info;
}

/// Adds experts of one of the model's tensors to the plan.
void plan_tensor(const ExpertTensor& whole, const SourceRange& source, SlicePlan& plan) {
    const int first = plan.info.expert_begin, count = plan.info.expert_end - first;
    const SourceRange range{source.file, source.offset + static_cast<uint64_t>(first) * whole.slab_bytes,
                            static_cast<uint64_t>(count) * whole.slab_bytes};
    ExpertTensor tensor = whole;
    if (!whole.digests.empty())
        tensor.digests.assign(whole.digests.begin() + first, whole.digests.begin() + first + count);
    tensor.n_slabs = count;
    plan.tensors.push_back(std::move(tensor));
    plan.ranges.push_back(range);
    plan.total_bytes += range.bytes;
    const uint64_t padding = (plan.alignment - range.bytes % plan.alignment) % plan.alignment;
    if (padding > 0) plan.ranges.push_back({SourceRange::padding, 0, padding});
    plan.total_bytes += padding;
}

uint64_t slab_bytes(const SlicePlan& plan) {
    uint64_t sum = 0;
    for (const ExpertTensor& tensor : plan.tensors)
        sum += tensor.slab_bytes * static_cast<uint64_t>(tensor.n_slabs);
    return sum;
}

/// Copies slabs from the model to the output and hashes what it copies, through one small buffer.
class SlabCopier {
  public:
    SlabCopier(const ModelFile& model, OutputFile& out, const WriteOptions& options, uint64_t offset, uint64_t total)
        : model_(model), out_(out), options_(options), offset_(offset), total_(total), buffer_(piece_bytes) {}

    Status padding(uint64_t bytes) {
        LINKCPP_TRY(out_.write_at(offset_, Bytes(static_cast<size_t>(bytes))));
        offset_ += bytes;
        return {};
    }

    Result<Digest> slab(SourceRange from) {
        Sha256 hash;
        while (from.bytes > 0) {
            if (options_.cancelled && *options_.cancelled)
                return Status(Code::unavailable, "interrupted; nothing was left behind");
            const std::span<uint8_t> piece(buffer_.data(),
                                           static_cast<size_t>(std::min<uint64_t>(from.bytes, buffer_.size())));
            LINKCPP_TRY(model_.file(from.file).read_at(from.offset, piece));
            hash.update(piece);
            LINKCPP_TRY(out_.write_at(offset_, piece));
            offset_ += piece.size();
            from.offset += piece.size();
            from.bytes -= piece.size();
            done_ += piece.size();
            if (options_.progress) options_.progress(done_, total_);
        }
        return hash.finish();
    }

  private:
    const ModelFile& model_;
    OutputFile& out_;
    const WriteOptions& options_;
    uint64_t offset_, total_, done_ = 0;
    Bytes buffer_;
};

}  // namespace

Result<SlicePlan> plan_slice(const ModelOutline& model, const SliceRequest& asked) {
    SliceRequest request = asked;
    LINKCPP_TRY(check_request(model, request));
    SlicePlan plan;
    plan.info = plan_info(model.info, request);
    plan.alignment = model.alignment;
    plan.metadata = model.slice_metadata;
    plan.n_metadata = model.n_slice_metadata;
    for (size_t i = 0; i < model.tensors.size(); ++i) {
        const int layer = model.tensors[i].name.layer;
        if (layer >= request.layer_begin && layer < request.layer_end)
            plan_tensor(model.tensors[i], model.sources[i], plan);
    }
    plan.header_bytes = make_header(plan, plan.info, plan.tensors).size();
    plan.total_bytes += plan.header_bytes;
    return plan;
}

Result<SlicePlan> plan_slice(const ModelFile& model, const SliceRequest& request) {
    return plan_slice(outline_of(model), request);
}

SliceHeader slice_header(const SlicePlan& plan) {
    SliceInfo info = plan.info;
    info.digest = slice_digest(plan.tensors, info.expert_begin);
    return {make_header(plan, info, plan.tensors), info.digest};
}

Result<SliceHeader> slice_header(const ModelFile& model, const SlicePlan& plan, const Progress& progress) {
    SlicePlan complete = plan;
    uint64_t done = 0;
    const uint64_t total = slab_bytes(plan);
    for (ExpertTensor& tensor : complete.tensors) {
        const ExpertTensor* whole = model.find(tensor.name);
        if (!whole) return Status(Code::invalid_argument, "the slice was planned for another model");
        tensor.digests.clear();
        for (int expert = plan.info.expert_begin; expert < plan.info.expert_end; ++expert) {
            auto digest = model.slab_digest(*whole, expert);
            if (!digest.ok()) return digest.status();
            tensor.digests.push_back(*digest);
            done += tensor.slab_bytes;
            if (progress) progress(done, total);
        }
    }
    return slice_header(complete);
}

Result<WrittenSlice> write_slice(const ModelFile& model, const SlicePlan& plan, const std::string& path,
                                 const WriteOptions& options) {
    LINKCPP_TRY(check_output_is_not_input(model, path));
    auto out = OutputFile::create(path, plan.total_bytes);
    if (!out.ok()) return out.status();
    // The header comes last: its size is known from the start, its digests when the slabs have been read.
    SlabCopier copier(model, *out, options, plan.header_bytes, slab_bytes(plan));
    std::vector<ExpertTensor> tensors = plan.tensors;
    for (ExpertTensor& each : tensors)
        each.digests.clear();  // those of what is read and written now
    auto tensor = tensors.begin();
    for (SourceRange range : plan.ranges) {
        if (range.file == SourceRange::padding) {
            LINKCPP_TRY(copier.padding(range.bytes));
            continue;
        }
        for (range.bytes = tensor->slab_bytes; tensor->digests.size() < static_cast<size_t>(tensor->n_slabs);
             range.offset += tensor->slab_bytes) {
            auto digest = copier.slab(range);
            if (!digest.ok()) return digest.status();
            tensor->digests.push_back(*digest);
        }
        ++tensor;
    }
    WrittenSlice written{plan.info, plan.total_bytes};
    written.info.digest = slice_digest(tensors, plan.info.expert_begin);
    LINKCPP_TRY(out->write_at(0, make_header(plan, written.info, tensors)));
    LINKCPP_TRY(out->publish());
    return written;
}

Status check_output_is_not_input(const ModelFile& model, const std::string& path) {
    for (int i = 0; i < model.info().n_files; ++i) {
        for (const std::string& name : {path, path + ".part"}) {
            if (model.file(i).is_same_file(name)) {
                return invalid(path + ": is the model itself; name another file for the output");
            }
        }
    }
    return {};
}

}  // namespace linkcpp::moe
