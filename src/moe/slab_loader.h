#pragma once
// Inside of the room: brings slabs into the tensors of a device, several at a time. Checking a digest and repacking cost
// more than reading, and slabs are independent of each other, so every thread of the device reads, checks and repacks
// slabs of its own. One object is used for one load.

#include "moe/device.h"

#include <ggml-cpp.h>

namespace linkcpp::moe {

class SlabLoader {
  public:
    /// `read` may be empty: then the slabs are taken from ExpertTensor::data as they are.
    SlabLoader(const GgmlDevice& device, const ReadSlab& read, const Progress& progress)
        : device_(device), read_(read), progress_(progress) {}

    /// `tensor`: allocated, with as many experts as `source` or more (the rest repeats the first ones); null when the slabs
    /// shall only be read. Both must stay valid until run() returns.
    void add(ggml_tensor* tensor, const ExpertTensor& source);
    /// The first error of `read`. Threads have ended when it returns.
    Status run();

  private:
    struct Job {
        ggml_tensor* tensor;
        const ExpertTensor* source;
        size_t begin, end;  ///< slabs of the tensor
    };

    Status run(const Job& job, Bytes& staging) const;
    Result<ByteSpan> read(const Job& job, Bytes& staging) const;

    const GgmlDevice& device_;
    const ReadSlab& read_;
    const Progress& progress_;
    std::vector<Job> jobs_;
    uint64_t total_ = 0;
};

}  // namespace linkcpp::moe
