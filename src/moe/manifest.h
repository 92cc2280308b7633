#pragma once
// The manifest of a model: what every byte of it must be. Digests of the header of each file, of every dense tensor and of
// every expert's slab, with the tensor table and what is needed to lay out slices. Its canonical bytes (docs/SLICES.md) give the
// model its identity: model_id is their SHA-256. What a manifest says is checked for sense when it is read, so that sizes
// and offsets in it can be used; whether it is true is the business of its signature. Plain values.

#include "moe/model_outline.h"

#include <atomic>

namespace linkcpp::moe {

struct ManifestFile {
    uint64_t bytes = 0, header_bytes = 0;
    Digest header;  ///< SHA-256 of the first `header_bytes`
};

struct ManifestTensor {
    std::string name;
    int type = 0;  ///< ggml_type
    uint32_t n_dims = 0;
    std::array<int64_t, 4> ne{1, 1, 1, 1};
    int file = 0;
    uint64_t offset = 0, bytes = 0;  ///< from the beginning of the file
    std::vector<Digest> digests;     ///< of an expert tensor one per expert, else one

    /// As an expert tensor with its digests; nullopt for a dense one. Errors: corrupt.
    Result<std::optional<ExpertTensor>> expert() const;
};

struct Manifest {
    std::string architecture, name;  ///< printable ASCII; other characters of the model's are '?'
    uint32_t alignment = gguf_default_alignment;
    uint32_t n_layer = 0, n_embd = 0, n_expert = 0, n_expert_used = 0, n_ff_exp = 0;
    Digest fingerprint;
    uint32_t n_slice_metadata = 0;
    Bytes slice_metadata;
    std::vector<ManifestFile> files;
    std::vector<ManifestTensor> tensors;  ///< in the order of file and offset; all other bytes are zeros
};

/// Reads the whole model once. `cancelled`: ends early with Code::unavailable. Errors: io; unsupported (bytes between the
/// tensors that are not zero, which no digest would cover).
Result<Manifest> make_manifest(const ModelFile& model, const Progress& progress = {},
                               const std::atomic<bool>* cancelled = nullptr);

/// Whether everything in it fits together. Errors: corrupt, with what does not.
Status check_manifest(const Manifest& manifest);

Bytes encode_manifest(const Manifest& manifest);
/// Errors: corrupt. What is returned has been checked, and encodes to the same bytes.
Result<Manifest> decode_manifest(ByteSpan bytes);
/// SHA-256 of the canonical bytes.
Digest model_id(const Manifest& manifest);

/// What a hub's key signs: a fixed text and the model_id.
Bytes manifest_message(const Digest& model_id);

/// Of a checked manifest. `source`: for messages.
ModelOutline outline_of(const Manifest& manifest, const std::string& source);

}  // namespace linkcpp::moe
