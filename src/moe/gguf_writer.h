#pragma once
// Makes the header of a GGUF version 3 file: metadata and tensor table, offsets assigned in the order of the tensors.
// The tensor data is somebody else's to write. Not thread-safe.

#include "moe/gguf.h"

#include <span>
#include <string>

namespace linkcpp::moe {

class GgufWriter {
  public:
    /// `alignment`: a power of two; becomes general.alignment.
    explicit GgufWriter(uint32_t alignment);

    /// Keys must be unique; that is the caller's to see to.
    void copy_all(ByteSpan entries, uint64_t count);
    void put_u32(std::string_view key, uint32_t value);
    void put_string(std::string_view key, std::string_view value);
    void put_strings(std::string_view key, std::span<const std::string> values);

    /// Returns where the data belongs, counted from the end of the header.
    uint64_t add_tensor(std::string_view name, int type, std::span<const int64_t> ne, uint64_t bytes);

    /// The complete header, padded to the alignment.
    Bytes header();
    /// Bytes of the tensor data, padding between and after tensors included.
    uint64_t data_bytes() const { return data_bytes_; }

  private:
    void put_key(std::string_view key, GgufType type);

    uint32_t alignment_;
    uint64_t n_fields_ = 0, n_tensors_ = 0, data_bytes_ = 0;
    ByteWriter fields_, tensors_;
};

}  // namespace linkcpp::moe
