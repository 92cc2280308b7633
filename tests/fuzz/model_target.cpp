// A GGUF file and the model in it, from parse_gguf() to ModelFile: every span lies in the file, every expert can be read.
//
// Input: one byte of options, then the file. Bit 0: where a hole marker begins, fill in the fingerprint and the checksum that
// would be right (a fuzzer cannot).
#include "fuzz/check.h"
#include "fuzz/memory_file.h"
#include "moe/hole_marker.h"
#include "moe/model_file.h"

#include <algorithm>

namespace {

using namespace linkcpp;
using fuzz::require;

constexpr size_t magic_bytes = 16, at_count = 28, at_fingerprint = 32, checksum_bytes = 32;

void repair_markers(Bytes& file) {
    const auto gguf = moe::parse_gguf(file, file.size());
    if (!gguf.ok()) return;
    const ByteSpan all(file);
    const Digest fingerprint = sha256(all.first(static_cast<size_t>(gguf->data_offset)));
    const Bytes marker = moe::encode_hole_marker({});
    for (const moe::GgufTensor& tensor : gguf->tensors) {
        const auto data =
            std::span(file).subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
        if (data.size() < marker.size() || !std::equal(marker.begin(), marker.begin() + magic_bytes, data.begin()))
            continue;
        const size_t size = moe::hole_marker_size(from_little_endian<uint32_t>(data.data() + at_count));
        if (size > data.size()) continue;
        std::copy(fingerprint.bytes.begin(), fingerprint.bytes.end(), data.begin() + at_fingerprint);
        const Digest checksum = sha256(data.first(size - checksum_bytes));
        std::copy(checksum.bytes.begin(), checksum.bytes.end(),
                  data.begin() + static_cast<ptrdiff_t>(size - checksum_bytes));
    }
}

void check_gguf(ByteSpan file) {
    const auto gguf = moe::parse_gguf(file, file.size());
    if (!gguf.ok()) return;
    require(gguf->data_offset <= file.size() || gguf->tensors.empty(), "the header is within the file");
    for (const moe::GgufField& field : gguf->fields) {
        require(gguf->find(field.key) == &field, "every key is found");
        require(field.raw.data() >= file.data() && field.raw.data() + field.raw.size() <= file.data() + file.size(),
                "metadata lies in the file");
        field.number();
        field.text();
        if (const auto texts = field.texts()) require(texts->size() == field.count, "an array has all its strings");
    }
    for (const moe::GgufTensor& tensor : gguf->tensors)
        require(tensor.bytes <= file.size() && tensor.offset <= file.size() - tensor.bytes, "tensors lie in the file");
}

void check_model(const moe::ModelFile& model, size_t file_bytes) {
    require(model.info().n_bytes_experts <= file_bytes, "experts are no larger than the file");
    for (const moe::ExpertTensor& tensor : model.expert_tensors()) {
        require(model.find(tensor.name) == &tensor, "every expert tensor is found");
        require(tensor.n_slabs > 0 && tensor.slab_bytes > 0, "an expert tensor has experts");
        require(tensor.data.empty() || tensor.data.size() == tensor.slab_bytes * static_cast<size_t>(tensor.n_slabs),
                "slabs fill their tensor");
        require(tensor.data.empty() != tensor.digests.empty(), "there are weights, or digests from a marker");
        require(model.slab_digest(tensor, 0).ok() && model.slab_digest(tensor, tensor.n_slabs - 1).ok(),
                "the first and the last expert can be read");
        require(!model.slab_digest(tensor, tensor.n_slabs).ok(), "there is no expert after the last");
        const auto range = model.source(tensor, 0, tensor.n_slabs);
        require(range.offset + range.bytes <= file_bytes, "experts lie in the file");
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteSpan input(data, size);
    const auto options = fuzz::cut<uint8_t>(input);
    Bytes file(input.begin(), input.end());
    if (options & 1) repair_markers(file);
    check_gguf(file);
    static fuzz::MemoryFile memory;
    memory.set(file);
    const auto model = moe::ModelFile::open(memory.path());
    if (model.ok()) check_model(*model, file.size());
    return 0;
}
