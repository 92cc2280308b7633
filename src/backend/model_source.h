#pragma once
// What a backbone knows about the experts of the model it runs: which they are (digests), and where their bytes are, if
// they are anywhere here. llama.cpp's loader gives a backend names, shapes and data, but no path; so the file is found
// from the mapping that the data lies in, or from the configuration, and is verified before it is used.
//
// Filled by the loader's thread, then read-only after seal(); const members may be called from any thread.

#include "moe/expert_tensor.h"
#include "moe/hole_marker.h"
#include "moe/model_file.h"

#include <atomic>
#include <map>
#include <optional>
#include <string>

namespace linkcpp::backend {

class ModelSource {
  public:
    /// A tensor that the loader put into our buffer. `data`: all of its bytes, valid during the call.
    void loaded(const moe::ExpertTensor& shape, int n_expert, ByteSpan data);

    /// Opens the file with the weights: `path`, or the one that was loaded. Logs what it finds. Call once, after loading.
    void seal(const std::string& path);

    /// The file that was loaded; "" where that is not known (no mmap).
    const std::string& loaded_path() const { return mapped_path_; }
    /// True when the bytes of experts can be read here.
    bool has_weights() const { return file_.has_value() && !file_->info().sparse; }
    /// True when the loaded file is a backbone file: where experts should be there are holes.
    bool is_sparse() const { return marker_fingerprint_.has_value(); }
    /// SHA-256 of the model's GGUF header(s), in hexadecimal; "" where it is not known.
    std::string fingerprint() const;
    /// Why not, for messages.
    const std::string& no_weights_reason() const { return no_weights_; }

    /// The tensors of a layer, with data spans when has_weights().
    std::vector<const moe::ExpertTensor*> tensors(int layer) const;
    int n_expert(int layer) const;
    const std::map<int, int>& layers() const { return layers_; }  ///< layer -> experts

    /// The digest of experts [expert_begin, expert_end) of layers [layer_begin, layer_end) as this model has them.
    /// `progress` grows meanwhile. Errors: not_found (the model has no such layers or experts), unsupported (nothing is
    /// known about their bytes), io.
    Result<Digest> digest(int layer_begin, int layer_end, int expert_begin, int expert_end,
                          std::atomic<uint64_t>* progress = nullptr) const;

  private:
    Status adopt(const std::string& path);

    std::vector<moe::ExpertTensor> loaded_;  // without data; digests where the loader showed the bytes
    std::optional<Digest> marker_fingerprint_;
    std::string mapped_path_;
    bool read_without_file_ = false;
    std::optional<moe::ModelFile> file_;
    std::map<int, int> layers_;
    std::string no_weights_ = "the model is not loaded yet";
};

/// A file that is mapped into this process.
struct FileMapping {
    std::string path;
    uintptr_t begin = 0, end = 0;  ///< addresses
    bool read_only = false;
};
/// The mapping that `address` lies in, if it is one of a file.
std::optional<FileMapping> file_mapped_at(const void* address);

}  // namespace linkcpp::backend
