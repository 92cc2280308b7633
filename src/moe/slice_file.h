#pragma once
// A slice on disk: a valid GGUF file that holds experts [expert_begin, expert_end) of layers [layer_begin, layer_end)
// of one model, as byte copies of the model's slabs, with a SHA-256 digest per slab. See docs/SLICES.md for the format.
//
// SliceFile maps the file read-only; spans stay valid as long as the object lives. Nothing in the file is trusted: open()
// checks every size against the file's, verify() checks every slab against its digest. After open() the object is
// immutable; const members may be called from any thread.

#include "base/digest.h"
#include "base/status.h"
#include "moe/tensor_kind.h"

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace linkcpp::moe {

/// One expert tensor of a slice (or of a whole model): slab i belongs to expert `expert_begin + i`.
struct ExpertTensor {
    ExpertTensorName name;
    int type = 0;                     ///< ggml_type
    std::array<int64_t, 2> ne{1, 1};  ///< shape of one slab: weight [n_in, n_out], bias [n_out, 1], scale [1, 1]
    uint64_t slab_bytes = 0;
    ByteSpan data;                ///< all slabs, in expert order
    std::vector<Digest> digests;  ///< one per slab
    int n_slabs = 0;              ///< experts held, also where there is no data
};

struct SliceInfo {
    std::string architecture;  ///< general.architecture, e.g. "qwen35moe"
    std::string model_name;    ///< general.name, may be empty
    int layer_begin = 0, layer_end = 0;
    int expert_begin = 0, expert_end = 0;
    int n_expert = 0;       ///< experts per layer in the whole model
    int n_expert_used = 0;  ///< top-k
    int n_embd = 0;
    Digest model_fingerprint;  ///< SHA-256 of the source model's GGUF header(s): tells models apart in messages
    Digest digest;             ///< slice_digest() of the tensors; its first 16 bytes are the id on the wire
};

/// The identity of a slice: Merkle root over one leaf per slab, ordered by layer, then kind code, then expert.
/// leaf = layer u32 | kind code u8 | expert u32 | ggml type u32 | ne[0] u64 | ne[1] u64 | SHA-256 of the slab.
/// Shapes and types are part of it, so another quantisation is another slice. `tensors` may be in any order.
Digest slice_digest(const std::vector<ExpertTensor>& tensors, int expert_begin);

/// Progress of long work in bytes; called from a thread that does it, never from two at once.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

/// Fills `out` with slab number `slab` of a tensor. Called from several threads at once.
using ReadSlab = std::function<Status(const ExpertTensor& tensor, size_t slab, std::span<uint8_t> out)>;

class SliceFile {
  public:
    /// Errors: not_found/io (cannot read), corrupt (not a GGUF, truncated, sizes that do not fit, digest list that does
    /// not match its tensors), invalid_argument (a GGUF, but not a slice).
    static Result<SliceFile> open(const std::string& path);

    SliceFile(SliceFile&&) noexcept;
    SliceFile& operator=(SliceFile&&) noexcept;
    ~SliceFile();

    const std::string& path() const;
    const SliceInfo& info() const;
    const std::vector<ExpertTensor>& tensors() const;
    uint64_t file_bytes() const;
    /// Reads all slabs and compares them with their digests. Errors: corrupt, naming the slab.
    Status verify(const Progress& progress = {}) const;
    /// Reads one slab into `out`, of slab_bytes, and compares it with its digest: what is used afterwards is what was
    /// checked, whatever happens to the file. Errors as verify(), and io.
    Status read(const ExpertTensor& tensor, size_t slab, std::span<uint8_t> out) const;

  private:
    struct Impl;
    explicit SliceFile(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace linkcpp::moe
