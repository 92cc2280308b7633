#pragma once
// What there is to know about a model for cutting it up, without its bytes: geometry, expert tensors and where they lie, and
// the metadata that a slice takes over. Made from a model on disk or from a manifest (manifest.h), so that both sides of a
// download lay out the same slice. A plain value.

#include "moe/model_file.h"

namespace linkcpp::moe {

struct ModelOutline {
    std::string source;  ///< path or name, for messages
    ModelInfo info;
    uint32_t alignment = gguf_default_alignment;
    Bytes slice_metadata;               ///< the GGUF entries that a slice takes over, byte by byte
    uint32_t n_slice_metadata = 0;      ///< entries
    std::vector<ExpertTensor> tensors;  ///< ordered by layer, then kind code; no data; digests where they are known
    std::vector<SourceRange> sources;   ///< of all experts of each tensor
};

/// No slab is read; digests are those that the model knows.
ModelOutline outline_of(const ModelFile& model);

}  // namespace linkcpp::moe
