#include "moe/model_outline.h"

#include <algorithm>

namespace linkcpp::moe {

namespace {

/// What a reader of a slice may want to know about the model: its name, authors and licence, its expert geometry.
bool is_wanted(std::string_view key, const std::string& architecture) {
    if (key == "general.alignment") return false;  // the writer's
    if (key.starts_with("general.")) return true;
    if (!key.starts_with(architecture + ".")) return false;
    key.remove_prefix(architecture.size() + 1);
    return key == "block_count" || key == "embedding_length" || key.starts_with("expert_");
}

}  // namespace

ModelOutline outline_of(const ModelFile& model) {
    ModelOutline outline;
    outline.source = model.file(0).path();
    outline.info = model.info();
    outline.alignment = model.gguf(0).alignment;
    for (const GgufField& field : model.gguf(0).fields) {
        if (!is_wanted(field.key, outline.info.architecture)) continue;
        outline.slice_metadata.insert(outline.slice_metadata.end(), field.raw.begin(), field.raw.end());
        ++outline.n_slice_metadata;
    }
    std::vector<const ExpertTensor*> tensors;
    for (const ExpertTensor& tensor : model.expert_tensors())
        tensors.push_back(&tensor);
    std::sort(tensors.begin(), tensors.end(), [](const ExpertTensor* a, const ExpertTensor* b) {
        return std::pair(a->name.layer, a->name.kind.code()) < std::pair(b->name.layer, b->name.kind.code());
    });
    for (const ExpertTensor* tensor : tensors) {
        outline.tensors.push_back(*tensor);
        outline.tensors.back().data = {};
        outline.sources.push_back(model.source(*tensor, 0, tensor->n_slabs));
    }
    return outline;
}

}  // namespace linkcpp::moe
