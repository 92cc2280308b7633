#include "moe/backbone_writer.h"

#include "moe/hole_marker.h"
#include "moe/model_parts.h"
#include "moe/output_file.h"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace linkcpp::moe {

namespace {

constexpr size_t piece_bytes = 1 << 20;

Status check_model(const ModelFile& model) {
    const std::string& path = model.file(0).path();
    if (model.expert_tensors().empty()) {
        return {Code::invalid_argument, path + ": is a dense model: it has no experts to leave out"};
    }
    if (model.info().sparse) return {Code::invalid_argument, path + ": is a backbone file already"};
    return {};
}

/// Writes one of the model's files. Owned by write_backbone(), one thread.
class BackboneFile {
  public:
    BackboneFile(const ModelFile& model, int file, OutputFile& out, const WriteOptions& options, uint64_t& done,
                 uint64_t total)
        : model_(model), file_(file), source_(model.file(file)), out_(out), options_(options), done_(done),
          total_(total), buffer_(piece_bytes) {}

    Status write() {
        LINKCPP_TRY(out_.resize(source_.bytes().size()));
        for (const ExpertTensor* tensor : holes()) {
            const SourceRange range = model_.source(*tensor, 0, tensor->n_slabs);
            LINKCPP_TRY(copy_until(range.offset));
            LINKCPP_TRY(hole(*tensor, range));
            position_ = range.offset + range.bytes;
        }
        return copy_until(source_.bytes().size());
    }

  private:
    std::vector<const ExpertTensor*> holes() const {
        std::vector<const ExpertTensor*> found;
        for (const ExpertTensor& tensor : model_.expert_tensors()) {
            if (model_.source(tensor, 0, 0).file == file_ && becomes_hole(tensor)) found.push_back(&tensor);
        }
        std::sort(found.begin(), found.end(), [this](const ExpertTensor* a, const ExpertTensor* b) {
            return model_.source(*a, 0, 0).offset < model_.source(*b, 0, 0).offset;
        });
        return found;
    }

    Status step(uint64_t bytes) {
        done_ += bytes;
        if (options_.progress) options_.progress(done_, total_);
        if (options_.cancelled && *options_.cancelled)
            return {Code::unavailable, "interrupted; nothing was left behind"};
        return {};
    }

    Status copy_until(uint64_t end) {
        while (position_ < end) {
            const std::span<uint8_t> piece(buffer_.data(),
                                           static_cast<size_t>(std::min<uint64_t>(end - position_, buffer_.size())));
            LINKCPP_TRY(source_.read_at(position_, piece));
            LINKCPP_TRY(out_.write_at(position_, piece));
            position_ += piece.size();
            LINKCPP_TRY(step(piece.size()));
        }
        return {};
    }

    Status hole(const ExpertTensor& tensor, const SourceRange& range) {
        HoleMarker marker;
        marker.model_fingerprint = model_.info().fingerprint;
        marker.kind = tensor.name.kind.code();
        marker.layer = static_cast<uint32_t>(tensor.name.layer);
        for (int expert = 0; expert < tensor.n_slabs; ++expert) {
            auto digest = model_.slab_digest(tensor, expert);
            if (!digest.ok()) return digest.status();
            marker.digests.push_back(*digest);
            LINKCPP_TRY(step(tensor.slab_bytes));
        }
        return out_.write_at(range.offset, encode_hole_marker(marker));
    }

    const ModelFile& model_;
    int file_;
    const MappedFile& source_;
    OutputFile& out_;
    const WriteOptions& options_;
    uint64_t& done_;
    uint64_t total_, position_ = 0;
    Bytes buffer_;
};

/// Gives all files their names, or none of them.
Status publish_all(std::vector<OutputFile>& outputs) {
    for (OutputFile& out : outputs)
        LINKCPP_TRY(out.sync());
    for (size_t i = 0; i < outputs.size(); ++i) {
        Status status = outputs[i].publish();
        if (status.ok()) continue;
        for (size_t j = 0; j < i; ++j)
            unlink(outputs[j].path().c_str());
        return status;
    }
    return {};
}

}  // namespace

bool becomes_hole(const ExpertTensor& tensor) {
    return hole_marker_size(static_cast<size_t>(tensor.n_slabs)) <=
           tensor.slab_bytes * static_cast<uint64_t>(tensor.n_slabs);
}

std::vector<std::string> backbone_paths(const std::string& path, int n_files) {
    if (n_files == 1) return {path};
    std::string prefix = path;
    if (const auto first = split_prefix(path, 0, n_files)) {
        prefix = *first;
    } else if (path.ends_with(".gguf")) {
        prefix.resize(path.size() - 5);
    }
    std::vector<std::string> paths;
    for (int i = 0; i < n_files; ++i)
        paths.push_back(split_path(prefix, i, n_files));
    return paths;
}

Result<WrittenBackbone> write_backbone(const ModelFile& model, const std::string& path, const WriteOptions& options) {
    LINKCPP_TRY(check_model(model));
    const int n_files = model.info().n_files;
    WrittenBackbone written;
    written.paths = backbone_paths(path, n_files);
    uint64_t kept = 0, done = 0;
    for (int i = 0; i < n_files; ++i)
        written.bytes += model.file(i).bytes().size();
    for (const ExpertTensor& tensor : model.expert_tensors()) {
        if (becomes_hole(tensor)) written.n_bytes_holes += tensor.data.size();
    }
    kept = written.bytes - written.n_bytes_holes;
    for (const std::string& output : written.paths)
        LINKCPP_TRY(check_output_is_not_input(model, output));
    std::vector<OutputFile> outputs;
    for (int i = 0; i < n_files; ++i) {
        auto out = OutputFile::create(written.paths[static_cast<size_t>(i)], kept);
        if (!out.ok()) return out.status();
        outputs.push_back(std::move(*out));
        LINKCPP_TRY(BackboneFile(model, i, outputs.back(), options, done, written.bytes).write());
        kept -= std::min(kept, outputs.back().allocated_bytes());
    }
    LINKCPP_TRY(publish_all(outputs));
    for (const OutputFile& out : outputs)
        written.allocated_bytes += out.allocated_bytes();
    return written;
}

}  // namespace linkcpp::moe
