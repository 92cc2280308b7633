#include "hub/manifest_store.h"

#include "base/log.h"
#include "moe/output_file.h"

#include <algorithm>
#include <optional>
#include <sys/stat.h>

namespace linkcpp::hub {

namespace {

constexpr std::string_view magic = "linkcpp kept manifest 1\n";

ByteSpan bytes_of(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

/// What stands in front of the manifest's bytes; the SHA-256 of everything stands behind them.
Bytes head_of(const FileTimes& times) {
    ByteWriter out;
    out.raw(bytes_of(magic));
    out.u32(static_cast<uint32_t>(times.files.size()));
    for (const auto& [size, time] : times.files) {
        out.u64(size);
        out.put(time);
    }
    return out.take();
}

std::optional<moe::Manifest> load(const std::string& path, const FileTimes& times) {
    auto file = moe::MappedFile::open(path);
    if (!file.ok()) return std::nullopt;
    const ByteSpan bytes = file->bytes();
    const Bytes head = head_of(times);
    if (bytes.size() < head.size() + 32 || !std::equal(head.begin(), head.end(), bytes.begin())) return std::nullopt;
    const ByteSpan checked = bytes.first(bytes.size() - 32);
    if (!std::ranges::equal(sha256(checked).bytes, bytes.last(32))) return std::nullopt;
    auto manifest = moe::decode_manifest(checked.subspan(head.size()));
    return manifest.ok() ? std::optional(std::move(*manifest)) : std::nullopt;
}

Status keep(const std::string& path, const FileTimes& times, const moe::Manifest& manifest) {
    Bytes bytes = head_of(times);
    const Bytes encoded = moe::encode_manifest(manifest);
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
    const Digest digest = sha256(bytes);
    bytes.insert(bytes.end(), digest.bytes.begin(), digest.bytes.end());
    auto out = moe::OutputFile::create(path, bytes.size());
    if (!out.ok()) return out.status();
    LINKCPP_TRY(out->write_at(0, bytes));
    return out->publish();
}

}  // namespace

FileTimes file_times(const moe::ModelFile& model) {
    FileTimes times;
    for (int i = 0; i < model.info().n_files; ++i) {
        struct stat stat {};
        if (fstat(model.file(i).fd(), &stat) != 0) stat = {};
        times.files.emplace_back(stat.st_size, stat.st_mtim.tv_sec * 1'000'000'000 + stat.st_mtim.tv_nsec);
    }
    return times;
}

Result<moe::Manifest> load_or_make_manifest(const moe::ModelFile& model, const std::string& path,
                                            const moe::Progress& progress, const std::atomic<bool>* cancelled) {
    const FileTimes times = file_times(model);
    if (auto kept = load(path, times); kept && kept->fingerprint == model.info().fingerprint) return std::move(*kept);
    auto manifest = moe::make_manifest(model, progress, cancelled);
    if (!manifest.ok()) return manifest.status();
    if (file_times(model) != times)
        return Status(Code::corrupt, model.file(0).path() + ": was changed while it was read; start again");
    LINKCPP_TRY(keep(path, times, *manifest));
    return manifest;
}

}  // namespace linkcpp::hub
