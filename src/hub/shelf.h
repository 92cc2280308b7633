#pragma once
// The models that a hub serves, by name, each with its manifest. Immutable after open() but for caches; any thread.

#include "base/signing_key.h"
#include "hub/manifest_store.h"
#include "hub/slice_cache.h"

#include <map>

namespace linkcpp::hub {

struct ServedModel {
    ServedModel(std::string called, moe::ModelFile opened, const moe::Manifest& manifest, const SigningKey& key);
    ServedModel(const ServedModel&) = delete;
    ServedModel& operator=(const ServedModel&) = delete;

    const std::string name;  ///< as it stands in URLs
    const moe::ModelFile file;
    const Digest id;                  ///< model_id
    const moe::ModelOutline outline;  ///< with the digests of all slabs
    const Bytes manifest_json;        ///< signed
    const FileTimes times;            ///< of the files when they were opened
    mutable SliceCache slices;
};

struct ModelSource {
    std::string name, path;
    /// "NAME=PATH", or "PATH" for the name of the file without ".gguf" and part number. Errors: invalid_argument.
    static Result<ModelSource> parse(const std::string& text);
};

struct ShelfOptions {
    std::string data;  ///< folder, exists; manifests are kept below it
    /// How far the manifest of a model is.
    std::function<void(const std::string& model, uint64_t done, uint64_t total)> progress;
    const std::atomic<bool>* cancelled = nullptr;
};

class Shelf {
  public:
    /// Reads models whose manifest is not kept. Errors: as ModelFile::open() and load_or_make_manifest();
    /// invalid_argument (two of one name, a sparse or dense model).
    static Result<Shelf> open(const std::vector<ModelSource>& sources, const SigningKey& key,
                              const ShelfOptions& options);

    /// nullptr: no such model.
    const ServedModel* find(const std::string& name) const;
    const std::vector<std::unique_ptr<ServedModel>>& models() const { return models_; }

  private:
    std::vector<std::unique_ptr<ServedModel>> models_;
};

}  // namespace linkcpp::hub
