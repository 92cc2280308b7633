#pragma once
// Manifests that were made once, kept in a folder: reading a whole model takes minutes. A kept one is used as long as size and
// modification time of every file are what they were. Blocking.

#include "moe/manifest.h"

namespace linkcpp::hub {

/// Size and modification time of each of the model's files.
struct FileTimes {
    std::vector<std::pair<uint64_t, int64_t>> files;
    bool operator==(const FileTimes&) const = default;
};
FileTimes file_times(const moe::ModelFile& model);

/// The manifest of `model` from `path`, or made and written there. Errors: as make_manifest(); io (`path` cannot be
/// written).
Result<moe::Manifest> load_or_make_manifest(const moe::ModelFile& model, const std::string& path,
                                            const moe::Progress& progress, const std::atomic<bool>* cancelled);

}  // namespace linkcpp::hub
