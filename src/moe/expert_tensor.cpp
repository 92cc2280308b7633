#include "moe/expert_tensor.h"

#include "ggml.h"

#include <fmt/format.h>

namespace linkcpp::moe {

namespace {

/// The dimension that counts the experts.
size_t expert_dimension(Role role) {
    switch (role) {
        case Role::weight: return 2;
        case Role::bias: return 1;
        case Role::scale:
        case Role::input_scale: return 0;
    }
    return 0;
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

}  // namespace

Result<std::optional<ExpertTensor>> expert_tensor(const GgufTensor& entry) {
    const auto name = ExpertTensorName::parse(entry.name);
    // A name that is not the canonical spelling ("blk.01.…") is nothing that llama.cpp would look for.
    if (!name || name->str() != entry.name) return std::optional<ExpertTensor>();
    const size_t dimension = expert_dimension(name->kind.role);
    bool fits = entry.bytes > 0 && entry.ne[dimension] <= max_experts;
    for (size_t i = dimension + 1; i < entry.ne.size(); ++i)
        fits = fits && entry.ne[i] == 1;
    if (!fits) {
        return Status(Code::corrupt, fmt::format("{} has the shape [{}, {}, {}, {}], which is not one of experts",
                                                 name->str(), entry.ne[0], entry.ne[1], entry.ne[2], entry.ne[3]));
    }
    if (dimension == 0 && ggml_blck_size(static_cast<ggml_type>(entry.type)) != 1) {
        return Status(Code::unsupported, fmt::format("{} has the block type {}, which cannot be cut into experts",
                                                     name->str(), tensor_type_name(entry.type)));
    }
    ExpertTensor tensor;
    tensor.name = *name;
    tensor.type = entry.type;
    for (size_t i = 0; i < dimension && i < tensor.ne.size(); ++i)
        tensor.ne[i] = entry.ne[i];
    tensor.n_slabs = static_cast<int>(entry.ne[dimension]);
    tensor.slab_bytes = entry.bytes / static_cast<uint64_t>(tensor.n_slabs);
    return std::optional(std::move(tensor));
}

std::vector<int64_t> tensor_dimensions(const ExpertTensor& tensor, int n_experts) {
    std::vector<int64_t> ne(tensor.ne.begin(),
                            tensor.ne.begin() + static_cast<long>(expert_dimension(tensor.name.kind.role)));
    ne.push_back(n_experts);
    return ne;
}

std::optional<Digest> parse_digest(std::string_view hex) {
    Digest digest;
    if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
    for (size_t i = 0; i < digest.bytes.size(); ++i) {
        const int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) return std::nullopt;
        digest.bytes[i] = static_cast<uint8_t>(high * 16 + low);
    }
    return digest;
}

}  // namespace linkcpp::moe
