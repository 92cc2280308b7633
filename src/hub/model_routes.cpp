#include "hub/model_routes.h"

#include "hub/json.h"
#include "hub/ranges.h"
#include "moe/model_parts.h"

#include <fmt/format.h>
#include <set>

namespace linkcpp::hub {

namespace {

using nlohmann::json;

json summary_of(const ServedModel& model) {
    const moe::ModelInfo& info = model.file.info();
    std::map<std::string, std::set<std::string>> types;
    for (const moe::ExpertTensor& tensor : model.file.expert_tensors())
        types[moe::kind_name(tensor.name.kind)].insert(moe::tensor_type_name(tensor.type));
    return {{"name", model.name},
            {"model_id", model.id.hex()},
            {"title", info.name},
            {"architecture", info.architecture},
            {"fingerprint", info.fingerprint.hex()},
            {"n_layer", info.n_layer},
            {"n_embd", info.n_embd},
            {"n_expert", info.n_expert},
            {"n_expert_used", info.n_expert_used},
            {"n_ff_exp", info.n_ff_exp},
            {"n_files", info.n_files},
            {"bytes", info.n_bytes},
            {"bytes_experts", info.n_bytes_experts},
            {"expert_types", types}};
}

Response no_such_model(const std::string& name, const Shelf& shelf) {
    std::string names;
    for (const auto& model : shelf.models())
        names += (names.empty() ? "" : ", ") + model->name;
    return error_response(404, "no_such_model", "there is no model '" + name.substr(0, 100) + "' here",
                          "this hub serves: " + names);
}

/// The first key of the query that the route does not know.
std::optional<Response> unknown_key(const Request& request, const std::set<std::string>& known) {
    for (const auto& [key, value] : request.query) {
        if (known.contains(key)) continue;
        std::string names;
        for (const std::string& name : known)
            names += (names.empty() ? "" : ", ") + name;
        return error_response(400, "unknown_parameter", "'" + key.substr(0, 100) + "' is no parameter of this route",
                              names.empty() ? "it has none" : "it has: " + names);
    }
    return std::nullopt;
}

Result<moe::SliceRequest> slice_request(const Request& request) {
    moe::SliceRequest slice;
    for (const auto& [key, begin, end] : {std::tuple("layers", &slice.layer_begin, &slice.layer_end),
                                          std::tuple("experts", &slice.expert_begin, &slice.expert_end)}) {
        const auto text = request.query_value(key);
        if (!text) continue;
        const auto range = parse_index_range(*text);
        if (!range.ok()) return range.status().in(key);
        std::tie(*begin, *end) = *range;
    }
    return slice;
}

Response expert_shard(const Request& request, const ServedModel& model) {
    const auto slice = slice_request(request);
    if (!slice.ok()) {
        return error_response(400, "bad_range", slice.status().message(),
                              "for example ?layers=0:4&experts=0:64; what is left out means all");
    }
    auto content = model.slices.find_or_make(*slice);
    if (!content.ok()) {
        return error_response(404, "no_such_experts", content.status().message(),
                              "the manifest and GET /api/proxy/models tell what the model has");
    }
    content->file_name = model.name + "-" + content->file_name;
    return content_response(request, *content);
}

Response file(const Request& request, const ServedModel& model) {
    const auto part = parse_index_range(request.query_value("part").value_or("0"));
    const int n_files = model.file.info().n_files;
    if (!part.ok() || part->second != part->first + 1) {
        return error_response(400, "bad_part", "part is the number of one of the model's files, from 0",
                              fmt::format("this model has {}", n_files));
    }
    if (part->first >= n_files) {
        return error_response(404, "no_such_part", fmt::format("there is no part {}", part->first),
                              fmt::format("the parts are 0 to {}", n_files - 1));
    }
    const moe::MappedFile& source = model.file.file(part->first);
    Content content;
    content.pieces = {{source.fd(), nullptr, 0, source.bytes().size()}};
    content.etag = fmt::format("\"{}-{}\"", model.id.hex(), part->first);
    content.file_name = n_files == 1 ? model.name + ".gguf" : moe::split_path(model.name, part->first, n_files);
    return content_response(request, content);
}

Response manifest(const Request& request, const ServedModel& model) {
    Content content;
    content.pieces = {{-1, model.manifest_json.data(), 0, model.manifest_json.size()}};
    content.etag = '"' + sha256(model.manifest_json).hex() + '"';
    content.type = "application/json";
    return content_response(request, content);
}

}  // namespace

void add_model_routes(Router& router, const Shelf& shelf) {
    router.add("GET", "/api/proxy/models", [&shelf](const Request& request) {
        if (auto error = unknown_key(request, {})) return std::move(*error);
        json models = json::array();
        for (const auto& model : shelf.models())
            models.push_back(summary_of(*model));
        return json_response({{"models", models}});
    });
    const auto add = [&](const char* what, std::set<std::string> keys,
                         Response (*answer)(const Request&, const ServedModel&)) {
        router.add("GET", std::string("/api/proxy/models/{model}/") + what,
                   [&shelf, keys = std::move(keys), answer](const Request& request) {
                       const std::string& name = request.parameters.at("model");
                       const ServedModel* model = shelf.find(name);
                       if (!model) return no_such_model(name, shelf);
                       if (auto error = unknown_key(request, keys)) return std::move(*error);
                       // Other bytes than the manifest's would only be refused at the other end.
                       if (file_times(model->file) != model->times) {
                           return error_response(503, "model_changed", "the model's file was changed under the hub",
                                                 "restart the hub");
                       }
                       return answer(request, *model);
                   });
    };
    add("manifest", {}, manifest);
    add("expert-shard", {"experts", "layers"}, expert_shard);
    add("file", {"part"}, file);
}

}  // namespace linkcpp::hub
