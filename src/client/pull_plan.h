#pragma once
// What a pull will fetch, unit by unit: each unit is a range of bytes with the digest that it must have. Made from a manifest
// alone. Pure functions.

#include "moe/manifest.h"
#include "moe/slice_writer.h"

namespace linkcpp::client {

struct PullUnit {
    uint64_t offset = 0, bytes = 0;  ///< the same in what the hub sends and in the file
    Digest digest;
    std::string what;  ///< for messages: "expert 3 of blk.0.ffn_up_exps.weight"
};

struct PullFile {
    std::string path, target;     ///< on the disk; at the hub, "/api/…"
    uint64_t bytes = 0;           ///< of the whole file; what no unit and no local part covers is zeros
    std::vector<PullUnit> units;  ///< by offset
    std::vector<std::pair<uint64_t, Bytes>> local;  ///< what need not be fetched: offset, bytes

    uint64_t n_bytes_fetched() const;
    /// Tells whether what lies on the disk belongs to this plan.
    Digest digest() const;
};

/// One file: the slice, whose header is made here. `model`: its name at the hub. Errors: as plan_slice().
Result<PullFile> plan_slice_pull(const moe::Manifest& manifest, const std::string& model,
                                 const moe::SliceRequest& request, const std::string& path);

/// The model's files with holes where the experts are; named as moe::write_backbone() does. Errors: invalid_argument.
Result<std::vector<PullFile>> plan_backbone_pull(const moe::Manifest& manifest, const std::string& model,
                                                 const std::string& path);

}  // namespace linkcpp::client
