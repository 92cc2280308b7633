#pragma once
// The files of a model: one, or the parts of a split model ("<name>-00001-of-00003.gguf"), found from any of them.

#include "moe/gguf.h"
#include "moe/mapped_file.h"

#include <optional>
#include <string>
#include <vector>

namespace linkcpp::moe {

struct ModelPart {
    MappedFile file;
    Gguf gguf;  ///< its views point into `file`
};

/// All parts in order. Errors: as MappedFile::open() and parse_gguf(), with the path in front; not_found (a missing
/// part), corrupt (parts that do not belong together).
Result<std::vector<ModelPart>> open_model_parts(const std::string& path);

/// "<prefix>-00002-of-00003.gguf" for part 1 of 3.
std::string split_path(const std::string& prefix, int part, int n_parts);
/// The prefix of a path that split_path() made for this part; nullopt when it is not one.
std::optional<std::string> split_prefix(const std::string& path, int part, int n_parts);

}  // namespace linkcpp::moe
