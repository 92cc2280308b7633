#include "hub/shelf.h"

#include "hub/manifest_json.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>

namespace linkcpp::hub {

namespace {

constexpr size_t max_name = 100;

/// Names are path segments of URLs and folder names under --data.
bool is_good_name(const std::string& name) {
    const auto good = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; };
    return !name.empty() && name.size() <= max_name && name[0] != '.' && std::all_of(name.begin(), name.end(), good);
}

/// "x-00001-of-00003" -> "x"
std::string without_part_number(const std::string& stem) {
    constexpr size_t length = sizeof("-00001-of-00003") - 1;
    if (stem.size() <= length) return stem;
    std::string shape = stem.substr(stem.size() - length);
    std::replace_if(
        shape.begin(), shape.end(), [](unsigned char c) { return std::isdigit(c); }, '0');
    return shape == "-00000-of-00000" ? stem.substr(0, stem.size() - length) : stem;
}

}  // namespace

Result<ModelSource> ModelSource::parse(const std::string& text) {
    ModelSource source;
    const size_t equals = text.find('='), slash = text.find('/');
    if (equals != std::string::npos && equals < slash) {
        source = {text.substr(0, equals), text.substr(equals + 1)};
    } else {
        source.path = text;
        source.name = text.substr(text.rfind('/') + 1);
        if (source.name.ends_with(".gguf")) source.name.resize(source.name.size() - 5);
        source.name = without_part_number(source.name);
    }
    if (!is_good_name(source.name)) {
        return {Code::invalid_argument,
                fmt::format(
                    "'{}' cannot be the name of a model: up to {} letters, digits, '.', '_' and '-', no '.' in front; "
                    "give it as NAME=PATH",
                    source.name, max_name)};
    }
    if (source.path.empty()) return {Code::invalid_argument, source.name + ": no path is given for this model"};
    return source;
}

ServedModel::ServedModel(std::string called, moe::ModelFile opened, const moe::Manifest& manifest,
                         const SigningKey& key)
    : name(std::move(called)), file(std::move(opened)), id(moe::model_id(manifest)),
      outline(moe::outline_of(manifest, name)), manifest_json(hub::manifest_json(manifest, name, key)),
      times(file_times(file)), slices(file, outline) {}

Result<Shelf> Shelf::open(const std::vector<ModelSource>& sources, const SigningKey& key, const ShelfOptions& options) {
    Shelf shelf;
    const std::string folder = options.data + "/manifests";
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return {Code::io, folder + ": cannot be created: " + error.message()};
    for (const ModelSource& source : sources) {
        if (shelf.find(source.name)) return {Code::invalid_argument, source.name + ": two models have this name"};
        auto file = moe::ModelFile::open(source.path);
        if (!file.ok()) return file.status();
        if (file->info().sparse)
            return {Code::invalid_argument,
                    source.path + ": is a backbone file, without experts; serve the full model"};
        if (file->expert_tensors().empty())
            return {Code::invalid_argument, source.path + ": is a dense model: it has no experts to serve"};
        const auto progress = [&](uint64_t done, uint64_t total) {
            if (options.progress) options.progress(source.name, done, total);
        };
        auto manifest = load_or_make_manifest(*file, folder + "/" + source.name, progress, options.cancelled);
        if (!manifest.ok()) return manifest.status();
        shelf.models_.push_back(std::make_unique<ServedModel>(source.name, std::move(*file), *manifest, key));
    }
    return shelf;
}

const ServedModel* Shelf::find(const std::string& name) const {
    for (const auto& model : models_) {
        if (model->name == name) return model.get();
    }
    return nullptr;
}

}  // namespace linkcpp::hub
