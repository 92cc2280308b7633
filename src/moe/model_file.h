#pragma once
// A whole model on disk, one GGUF file or a split one (-00001-of-00003.gguf): its metadata, its tensor table and the
// bytes of its expert tensors. Sparse backbone files (holes where the experts are, each with a marker) open as well;
// their expert tensors have no data but the digests of the marker. Same trust and thread rules as SliceFile.

#include "moe/gguf.h"
#include "moe/mapped_file.h"
#include "moe/slice_file.h"

#include <cstdint>
#include <optional>

namespace linkcpp::moe {

struct ModelLayer {
    int layer = 0;
    int n_expert = 0;  ///< 0: a layer without experts
    std::vector<const ExpertTensor*> tensors;
};

struct ModelInfo {
    std::string architecture, name;
    int n_layer = 0;  ///< block_count
    int n_embd = 0, n_expert = 0, n_expert_used = 0, n_ff_exp = 0;
    uint64_t n_bytes = 0;          ///< all tensor data
    uint64_t n_bytes_experts = 0;  ///< expert tensor data
    Digest fingerprint;            ///< SHA-256 of the GGUF header(s)
    bool sparse = false;           ///< a backbone file: expert bytes are holes
    int n_files = 1;
};

/// Bytes of one of the model's files.
struct SourceRange {
    int file = 0;  ///< 0-based part; `padding`: zeros from nowhere
    uint64_t offset = 0, bytes = 0;
    static constexpr int padding = -1;
};

class ModelFile {
  public:
    /// `path` is the file, or any part of a split model. Errors: not_found, io, corrupt (with what is wrong and where).
    static Result<ModelFile> open(const std::string& path);

    ModelFile(ModelFile&&) noexcept;
    ModelFile& operator=(ModelFile&&) noexcept;
    ~ModelFile();

    const ModelInfo& info() const;
    /// Layers 0..n_layer-1 by the tensor table, not by a formula: some have no experts, some fewer.
    const std::vector<ModelLayer>& layers() const;
    /// All expert tensors; `data` is empty in a sparse file, `digests` is empty until compute_digests() in a full one.
    const std::vector<ExpertTensor>& expert_tensors() const;
    /// Expert tensor by name, or nullptr.
    const ExpertTensor* find(const ExpertTensorName& name) const;

    /// The parts in order: their paths, descriptors and bytes, and what their headers say.
    const MappedFile& file(int index) const;
    const Gguf& gguf(int index) const;
    /// Where experts [first, first + count) of one of expert_tensors() (or of a copy of it) lie.
    SourceRange source(const ExpertTensor& tensor, int first, int count) const;

    /// The SHA-256 of one slab of one of expert_tensors(): from the marker in a sparse file, else read and hashed once,
    /// then remembered. Errors: io, not_found (no such expert). Thread-safe.
    Result<Digest> slab_digest(const ExpertTensor& tensor, int expert) const;
    /// Fills `digests` of all expert tensors: reads every expert once. Not while other threads use this object.
    Status compute_digests(const Progress& progress = {});

  private:
    struct Impl;
    explicit ModelFile(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace linkcpp::moe
