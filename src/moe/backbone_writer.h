#pragma once
// Writes the backbone of a model: the model's own files, byte for byte and of the same size, but with holes where the
// experts were, each with a marker at its head (hole_marker.h). They load in any llama.cpp, and take the space of what
// is not a hole. A split model gives as many files: merging would change its header, and with it the fingerprint.

#include "moe/slice_writer.h"

namespace linkcpp::moe {

struct WrittenBackbone {
    std::vector<std::string> paths;  ///< one per file of the model
    uint64_t bytes = 0;              ///< size of the files
    uint64_t allocated_bytes = 0;    ///< what they take on the disk
    uint64_t n_bytes_holes = 0;      ///< expert bytes that were left out
};

/// `path`: the file; for a split model "<name>.gguf" gives "<name>-00001-of-0000N.gguf" and so on, as does the name of the
/// first of them. Reads the whole model once. All files appear, or none. Errors: as write_slice().
Result<WrittenBackbone> write_backbone(const ModelFile& model, const std::string& path,
                                       const WriteOptions& options = {});

/// Whether a backbone has a hole for this expert tensor; very small ones keep their data.
bool becomes_hole(const ExpertTensor& tensor);
/// The files of a backbone with `n_files` parts, as write_backbone() names them.
std::vector<std::string> backbone_paths(const std::string& path, int n_files);

}  // namespace linkcpp::moe
