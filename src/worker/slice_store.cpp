#include "worker/slice_store.h"

#include <algorithm>
#include <fmt/format.h>

namespace linkcpp::worker {

namespace {

wire::SliceId slice_id(const moe::SliceInfo& info) {
    wire::SliceId id;
    std::copy_n(info.digest.bytes.begin(), id.size(), id.begin());
    return id;
}

std::string megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

/// Opens all files, so that a wrong name costs nothing, and refuses what could not be served.
Status open_all(const std::vector<std::string>& paths, std::vector<HeldSlice>& slices) {
    if (paths.size() > wire::max_slices_offered) {
        return {Code::invalid_argument,
                fmt::format("{} slices, a worker can offer {}; give slices with more layers or experts", paths.size(),
                            wire::max_slices_offered)};
    }
    for (const std::string& path : paths) {
        Result<moe::SliceFile> file = moe::SliceFile::open(path);
        if (!file.ok()) return file.status();
        for (const HeldSlice& other : slices) {
            if (slice_id(other.file.info()) == slice_id(file->info())) {
                return {Code::invalid_argument,
                        fmt::format("{} and {} are the same slice; give it once", other.file.path(), path)};
            }
        }
        slices.push_back({std::move(*file), nullptr});
    }
    return {};
}

Status check_memory(const std::vector<HeldSlice>& slices, moe::Device& device, uint64_t max_memory) {
    uint64_t needed = 0;
    for (const HeldSlice& slice : slices) {
        Result<uint64_t> bytes = moe::Engine::bytes_needed(device, slice.file.tensors());
        if (!bytes.ok()) return bytes.status().in(slice.file.path());
        needed += *bytes;
    }
    if (max_memory == 0 || needed <= max_memory) return {};
    return {
        Code::exhausted,
        fmt::format(
            "the experts need {} of memory, --max-memory allows {}; serve fewer experts (linkcpp slice cuts smaller "
            "slices) or allow more with --max-memory {}",
            megabytes(needed), megabytes(max_memory), needed)};
}

}  // namespace

Status load_engine(HeldSlice& slice, std::shared_ptr<moe::Device> device, const moe::Progress& progress) {
    auto engine = moe::Engine::load(std::move(device), slice.file.tensors(), progress,
                                    [&slice](const moe::ExpertTensor& tensor, size_t slab, std::span<uint8_t> out) {
                                        return slice.file.read(tensor, slab, out);
                                    });
    if (!engine.ok()) return engine.status().in(slice.file.path());
    slice.engine = std::move(*engine);
    return {};
}

Result<SliceStore> SliceStore::load(const std::vector<std::string>& paths, std::shared_ptr<moe::Device> device,
                                    uint64_t max_memory, const Progress& progress) {
    SliceStore store;
    LINKCPP_TRY(open_all(paths, store.slices_));
    LINKCPP_TRY(check_memory(store.slices_, *device, max_memory));
    for (HeldSlice& slice : store.slices_) {
        const std::string& path = slice.file.path();
        moe::Progress tell;
        if (progress) tell = [&](uint64_t done, uint64_t total) { progress("loading " + path, done, total); };
        LINKCPP_TRY(load_engine(slice, device, tell));
    }
    return store;
}

ServedSlice served_slice(const HeldSlice& slice) {
    const moe::SliceInfo& info = slice.file.info();
    ServedSlice served;
    served.offer = {slice_id(info), static_cast<uint32_t>(info.layer_begin), static_cast<uint32_t>(info.layer_end),
                    static_cast<uint32_t>(info.expert_begin), static_cast<uint32_t>(info.expert_end)};
    served.engine = slice.engine.get();
    served.n_expert_used = info.n_expert_used;
    return served;
}

std::vector<ServedSlice> SliceStore::served() const {
    std::vector<ServedSlice> served;
    for (const HeldSlice& slice : slices_)
        served.push_back(served_slice(slice));
    return served;
}

}  // namespace linkcpp::worker
