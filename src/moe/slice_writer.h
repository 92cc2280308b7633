#pragma once
// Cuts slices out of a model. What a slice will contain (plan_slice) is apart from writing it (write_slice), so that the
// same bytes can be sent to somebody without a file in between: slice_header(), then the plan's ranges of the model's
// files. A plan needs no more than the model's outline, so who receives a slice can make the same. Slabs are copied byte by
// byte, never converted. Blocking; one call per thread, calls share nothing.

#include "moe/model_outline.h"

#include <atomic>

namespace linkcpp::moe {

/// Half-open ranges; an end of -1 means "to the last one".
struct SliceRequest {
    int layer_begin = 0, layer_end = -1;
    int expert_begin = 0, expert_end = -1;
};

struct SlicePlan {
    SliceInfo info;                     ///< everything but `digest`, which needs the slabs to be read
    std::vector<ExpertTensor> tensors;  ///< in file order, without data; digests when the outline has them
    uint32_t alignment = 0;
    Bytes metadata;  ///< entries of the model that the header takes over
    uint32_t n_metadata = 0;
    uint64_t header_bytes = 0;
    uint64_t total_bytes = 0;         ///< of the slice file
    std::vector<SourceRange> ranges;  ///< what follows the header, in order; one per tensor and one per padding
};

/// Cheap: reads no slab. Errors: invalid_argument (a dense model, ranges that the model does not have, a sparse file).
Result<SlicePlan> plan_slice(const ModelOutline& model, const SliceRequest& request);
Result<SlicePlan> plan_slice(const ModelFile& model, const SliceRequest& request);

struct SliceHeader {
    Bytes bytes;    ///< plan.header_bytes of them
    Digest digest;  ///< of the slice
};
/// The header of a plan whose tensors have their digests.
SliceHeader slice_header(const SlicePlan& plan);
/// The same of any plan; slabs whose digest the model does not know yet are read. Errors: io.
Result<SliceHeader> slice_header(const ModelFile& model, const SlicePlan& plan, const Progress& progress = {});

struct WriteOptions {
    Progress progress;
    /// When this becomes true, writing ends with Code::unavailable and leaves nothing behind.
    const std::atomic<bool>* cancelled = nullptr;
};

struct WrittenSlice {
    SliceInfo info;  ///< with `digest`
    uint64_t bytes = 0;
};
/// Writes the slice to `path` in one pass over its slabs; the file appears whole or not at all.
/// Errors: as OutputFile; invalid_argument (`path` is the model itself); io, corrupt (the model cannot be read).
Result<WrittenSlice> write_slice(const ModelFile& model, const SlicePlan& plan, const std::string& path,
                                 const WriteOptions& options = {});

/// Refuses to write over one of the model's own files.
Status check_output_is_not_input(const ModelFile& model, const std::string& path);

}  // namespace linkcpp::moe
