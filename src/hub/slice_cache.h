#pragma once
// Slices as they are sent: a header in memory, then ranges of the model's files. The headers of the last few are kept, because
// a download asks many times, range by range. Thread-safe.

#include "hub/content.h"
#include "moe/slice_writer.h"

#include <list>
#include <mutex>

namespace linkcpp::hub {

class SliceCache {
  public:
    /// `model` and `outline` (with digests) must outlive the cache and every Content.
    SliceCache(const moe::ModelFile& model, const moe::ModelOutline& outline) : model_(model), outline_(outline) {}

    /// Errors: as plan_slice().
    Result<Content> find_or_make(const moe::SliceRequest& request);

  private:
    struct Entry {
        moe::SliceRequest request;
        Content content;
        size_t n_bytes = 0;
    };
    Result<Entry> make(const moe::SliceRequest& request) const;

    const moe::ModelFile& model_;
    const moe::ModelOutline& outline_;
    std::mutex mutex_;
    // Protected by mutex_: the latest first, and the sum of their bytes.
    std::list<Entry> entries_;
    size_t n_bytes_ = 0;
};

}  // namespace linkcpp::hub
