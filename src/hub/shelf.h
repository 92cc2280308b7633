#pragma once
// The models that a hub serves, by name. Immutable after open(); any thread.

#include "moe/model_file.h"

#include <map>

namespace linkcpp::hub {

struct ServedModel {
    std::string name;  ///< as it stands in URLs
    moe::ModelFile file;
};

struct ModelSource {
    std::string name, path;
    /// "NAME=PATH", or "PATH" for the name of the file without ".gguf" and part number. Errors: invalid_argument.
    static Result<ModelSource> parse(const std::string& text);
};

class Shelf {
  public:
    /// Errors: as ModelFile::open(); invalid_argument (two of one name, a sparse or dense model).
    static Result<Shelf> open(const std::vector<ModelSource>& sources);

    /// nullptr: no such model.
    const ServedModel* find(const std::string& name) const;
    const std::vector<std::unique_ptr<ServedModel>>& models() const { return models_; }

  private:
    std::vector<std::unique_ptr<ServedModel>> models_;
};

}  // namespace linkcpp::hub
