#include "moe/model_parts.h"

#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

// The keys under which llama.cpp's splitting tool says which part a file is.
constexpr const char* key_no = "split.no";
constexpr const char* key_count = "split.count";
constexpr const char* key_tensors = "split.tensors.count";

Result<ModelPart> open_part(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file.ok()) return file.status();
    auto gguf = parse_gguf(file->bytes(), file->bytes().size());
    if (!gguf.ok()) return gguf.status().in(path);
    return ModelPart{std::move(*file), std::move(*gguf)};
}

Status check_totals(const std::vector<ModelPart>& parts) {
    const auto expected = parts.front().gguf.number(key_tensors);
    uint64_t n_tensors = 0;
    for (const ModelPart& part : parts)
        n_tensors += part.gguf.tensors.size();
    if (!expected || *expected == n_tensors) return {};
    return {Code::corrupt, fmt::format("{}: the model has {} tensors, its {} parts hold {}", parts.front().file.path(),
                                       *expected, parts.size(), n_tensors)};
}

}  // namespace

std::string split_path(const std::string& prefix, int part, int n_parts) {
    return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, part + 1, n_parts);
}

std::optional<std::string> split_prefix(const std::string& path, int part, int n_parts) {
    const std::string suffix = split_path("", part, n_parts);
    if (path.size() <= suffix.size() || !path.ends_with(suffix)) return std::nullopt;
    return path.substr(0, path.size() - suffix.size());
}

Result<std::vector<ModelPart>> open_model_parts(const std::string& path) {
    auto given = open_part(path);
    if (!given.ok()) return given.status();
    const uint64_t count = given->gguf.number(key_count).value_or(1), number = given->gguf.number(key_no).value_or(0);
    std::vector<ModelPart> parts;
    if (count <= 1) {
        parts.push_back(std::move(*given));
        return parts;
    }
    if (count > UINT16_MAX || number >= count) {
        return Status(Code::corrupt, fmt::format("{}: says that it is part {} of {}", path, number + 1, count));
    }
    const int n_parts = static_cast<int>(count);
    const auto prefix = split_prefix(path, static_cast<int>(number), n_parts);
    if (!prefix) {
        return Status(Code::invalid_argument,
                      fmt::format("{}: is part {} of {} of a split model, so its name must end in {}", path, number + 1,
                                  count, split_path("", static_cast<int>(number), n_parts)));
    }
    for (int i = 0; i < n_parts; ++i) {
        auto part = open_part(split_path(*prefix, i, n_parts));
        if (!part.ok()) {
            const bool missing = part.status().code() == Code::not_found;
            return missing ? part.status().in(fmt::format("part {} of {} is missing", i + 1, n_parts)) : part.status();
        }
        if (part->gguf.number(key_count) != count || part->gguf.number(key_no) != static_cast<uint64_t>(i)) {
            return Status(Code::corrupt,
                          fmt::format("{}: does not say that it is part {} of {}", part->file.path(), i + 1, n_parts));
        }
        parts.push_back(std::move(*part));
    }
    LINKCPP_TRY(check_totals(parts));
    return parts;
}

}  // namespace linkcpp::moe
