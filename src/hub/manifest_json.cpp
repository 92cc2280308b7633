#include "hub/manifest_json.h"

#include "base/hex.h"

#include <nlohmann/json.hpp>

namespace linkcpp::hub {

namespace {

using nlohmann::json;

json tensor_json(const moe::ManifestTensor& tensor) {
    json digests = json::array();
    for (const Digest& digest : tensor.digests)
        digests.push_back(digest.hex());
    return {{"name", tensor.name},
            {"type", tensor.type},
            {"type_name", moe::tensor_type_name(tensor.type)},
            {"shape", std::vector<int64_t>(tensor.ne.begin(), tensor.ne.begin() + tensor.n_dims)},
            {"file", tensor.file},
            {"offset", tensor.offset},
            {"bytes", tensor.bytes},
            {"sha256", std::move(digests)}};
}

}  // namespace

Bytes manifest_json(const moe::Manifest& manifest, const std::string& name, const SigningKey& key) {
    json files = json::array(), tensors = json::array();
    for (const moe::ManifestFile& file : manifest.files)
        files.push_back(
            {{"bytes", file.bytes}, {"header_bytes", file.header_bytes}, {"header_sha256", file.header.hex()}});
    for (const moe::ManifestTensor& tensor : manifest.tensors)
        tensors.push_back(tensor_json(tensor));
    const Digest id = moe::model_id(manifest);
    const json value = {
        {"version", 1},
        {"model", name},
        {"model_id", id.hex()},
        {"architecture", manifest.architecture},
        {"title", manifest.name},
        {"fingerprint", manifest.fingerprint.hex()},
        {"alignment", manifest.alignment},
        {"n_layer", manifest.n_layer},
        {"n_embd", manifest.n_embd},
        {"n_expert", manifest.n_expert},
        {"n_expert_used", manifest.n_expert_used},
        {"n_ff_exp", manifest.n_ff_exp},
        {"slice_metadata", {{"entries", manifest.n_slice_metadata}, {"hex", to_hex(manifest.slice_metadata)}}},
        {"files", std::move(files)},
        {"tensors", std::move(tensors)},
        {"hub_key", key.public_key().hex()},
        {"signature", to_hex(key.sign(moe::manifest_message(id)))}};
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
    return Bytes(text.begin(), text.end());
}

}  // namespace linkcpp::hub
