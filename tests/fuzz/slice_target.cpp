// A slice file: what opens has tensors and digests that fit each other, and verify() comes to an end.
//
// Input: one byte of options, then the file. Bit 0: fill in the digests that would be right (a fuzzer cannot).
#include "fuzz/check.h"
#include "fuzz/memory_file.h"
#include "moe/expert_tensor.h"
#include "moe/gguf.h"
#include "moe/slice_file.h"
#include "moe/slice_format.h"

#include <algorithm>

namespace {

using namespace linkcpp;
using fuzz::require;

/// Overwrites a piece of text in the file, if it has room for exactly that.
void overwrite(Bytes& file, std::string_view there, const std::string& text) {
    if (there.size() != text.size()) return;
    const auto at = reinterpret_cast<const uint8_t*>(there.data()) - file.data();
    std::copy(text.begin(), text.end(), file.begin() + at);
}

void repair_digests(Bytes& file) {
    const auto gguf = moe::parse_gguf(file, file.size());
    if (!gguf.ok()) return;
    std::vector<moe::ExpertTensor> tensors;
    for (const moe::GgufTensor& entry : gguf->tensors) {
        auto tensor = moe::expert_tensor(entry);
        if (!tensor.ok() || !*tensor) continue;
        const moe::GgufField* field = gguf->find(moe::slice_key::digests((*tensor)->name.str()));
        const auto texts = field ? field->texts() : std::nullopt;
        if (!texts || texts->size() != static_cast<size_t>((*tensor)->n_slabs)) continue;
        for (size_t i = 0; i < texts->size(); ++i) {
            const size_t offset = static_cast<size_t>(entry.offset + i * (*tensor)->slab_bytes);
            (*tensor)->digests.push_back(
                sha256(ByteSpan(file).subspan(offset, static_cast<size_t>((*tensor)->slab_bytes))));
            overwrite(file, (*texts)[i], (*tensor)->digests.back().hex());
        }
        tensors.push_back(std::move(**tensor));
    }
    const auto expert_begin = gguf->number(moe::slice_key::expert_begin).value_or(0);
    if (const auto there = gguf->text(moe::slice_key::digest)) {
        overwrite(file, *there, moe::slice_digest(tensors, static_cast<int>(expert_begin & INT32_MAX)).hex());
    }
}

void check_slice(const moe::SliceFile& slice, size_t file_bytes, bool repaired) {
    const moe::SliceInfo& info = slice.info();
    require(info.expert_begin < info.expert_end && info.expert_end <= info.n_expert, "its experts are a range");
    require(info.layer_begin < info.layer_end, "its layers are a range");
    uint64_t total = 0;
    for (const moe::ExpertTensor& tensor : slice.tensors()) {
        require(tensor.n_slabs == info.expert_end - info.expert_begin, "every tensor has the slice's experts");
        require(tensor.digests.size() == static_cast<size_t>(tensor.n_slabs), "every slab has a digest");
        require(tensor.data.size() == tensor.slab_bytes * tensor.digests.size(), "slabs fill their tensor");
        require(tensor.name.layer >= info.layer_begin && tensor.name.layer < info.layer_end, "layers are the slice's");
        total += tensor.data.size();
    }
    require(!slice.tensors().empty() && total <= file_bytes, "experts lie in the file");
    require(moe::slice_digest(slice.tensors(), info.expert_begin) == info.digest, "the digest is that of its slabs");
    uint64_t seen = 0;
    const Status verified = slice.verify([&](uint64_t done, uint64_t) { seen = done; });
    require(!verified.ok() || seen == total, "verifying reads every slab");
    require(verified.ok() || !repaired, "slabs with the right digests are accepted");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    ByteSpan input(data, size);
    const auto options = fuzz::cut<uint8_t>(input);
    Bytes file(input.begin(), input.end());
    if (options & 1) repair_digests(file);
    static fuzz::MemoryFile memory;
    memory.set(file);
    const auto slice = moe::SliceFile::open(memory.path());
    if (slice.ok()) check_slice(*slice, file.size(), options & 1);
    return 0;
}
