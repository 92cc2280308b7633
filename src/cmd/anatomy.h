#pragma once
// What `linkcpp inspect` tells about a model, a backbone file or a slice: the facts, gathered from the file, apart from
// how they are printed.

#include "base/status.h"
#include "moe/model_file.h"
#include "moe/slice_file.h"

#include <map>
#include <string>
#include <vector>

namespace linkcpp::cmd {

/// One kind of expert tensor over all layers.
struct KindAnatomy {
    std::map<int, int> n_by_type;  ///< ggml_type -> number of tensors
    std::array<int64_t, 2> ne{};   ///< shape of one slab
    uint64_t slab_bytes_min = 0, slab_bytes_max = 0;
};

struct Anatomy {
    std::string kind;  ///< "model", "backbone" or "slice"
    std::string path;
    moe::ModelInfo model;                  ///< of a slice: what it says about the model it was cut from
    moe::SliceInfo slice;                  ///< of a slice only
    std::map<int, uint64_t> expert_bytes;  ///< layer with experts -> bytes of one expert
    std::map<int, int> n_expert;           ///< layer with experts -> experts in the model
    std::map<std::string, KindAnatomy> kinds;
    uint64_t file_bytes = 0;
    uint64_t disk_bytes = 0;  ///< what the files take, holes not counted
};

/// Reads headers only. Errors: as ModelFile::open() and SliceFile::open().
Result<Anatomy> read_anatomy(const std::string& path);

std::string anatomy_text(const Anatomy& anatomy);
std::string anatomy_json(const Anatomy& anatomy);

}  // namespace linkcpp::cmd
