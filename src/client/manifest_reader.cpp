#include "client/manifest_reader.h"

#include "base/hex.h"

#include <nlohmann/json.hpp>

namespace linkcpp::client {

namespace {

using nlohmann::json;

/// Throws what nlohmann throws when a field is missing or of another type; read_manifest() catches it.
Digest digest_at(const json& value) {
    const auto bytes = from_hex_array<32>(value.get_ref<const std::string&>());
    if (!bytes) throw std::invalid_argument("not a digest");
    return {*bytes};
}

template <typename Number>
Number number_at(const json& object, const char* key) {
    const json& value = object.at(key);
    if (!value.is_number_unsigned() || value.get<uint64_t>() > std::numeric_limits<Number>::max())
        throw std::invalid_argument(std::string(key) + " is not a number that is possible");
    return value.get<Number>();
}

moe::ManifestTensor tensor_at(const json& value) {
    moe::ManifestTensor tensor;
    tensor.name = value.at("name").get<std::string>();
    tensor.type = number_at<int>(value, "type");
    const json& shape = value.at("shape");
    tensor.n_dims = static_cast<uint32_t>(shape.size());
    if (tensor.n_dims > tensor.ne.size()) throw std::invalid_argument("too many dimensions");
    for (size_t i = 0; i < shape.size(); ++i)
        tensor.ne[i] = shape[i].get<int64_t>();
    tensor.file = number_at<int>(value, "file");
    tensor.offset = number_at<uint64_t>(value, "offset");
    tensor.bytes = number_at<uint64_t>(value, "bytes");
    for (const json& digest : value.at("sha256"))
        tensor.digests.push_back(digest_at(digest));
    return tensor;
}

moe::Manifest manifest_at(const json& value) {
    moe::Manifest manifest;
    manifest.architecture = value.at("architecture").get<std::string>();
    manifest.name = value.at("title").get<std::string>();
    manifest.alignment = number_at<uint32_t>(value, "alignment");
    manifest.n_layer = number_at<uint32_t>(value, "n_layer");
    manifest.n_embd = number_at<uint32_t>(value, "n_embd");
    manifest.n_expert = number_at<uint32_t>(value, "n_expert");
    manifest.n_expert_used = number_at<uint32_t>(value, "n_expert_used");
    manifest.n_ff_exp = number_at<uint32_t>(value, "n_ff_exp");
    manifest.fingerprint = digest_at(value.at("fingerprint"));
    const json& metadata = value.at("slice_metadata");
    manifest.n_slice_metadata = number_at<uint32_t>(metadata, "entries");
    auto bytes = from_hex(metadata.at("hex").get_ref<const std::string&>());
    if (!bytes) throw std::invalid_argument("slice_metadata is not hexadecimal");
    manifest.slice_metadata = std::move(*bytes);
    for (const json& file : value.at("files")) {
        manifest.files.push_back({number_at<uint64_t>(file, "bytes"), number_at<uint64_t>(file, "header_bytes"),
                                  digest_at(file.at("header_sha256"))});
    }
    for (const json& tensor : value.at("tensors"))
        manifest.tensors.push_back(tensor_at(tensor));
    return manifest;
}

}  // namespace

Result<SignedManifest> read_manifest(const std::string& json_text) {
    SignedManifest result;
    try {
        const json value = json::parse(json_text);
        if (const auto version = number_at<uint32_t>(value, "version"); version != 1)
            return Status(Code::unsupported, "the hub's manifest has version " + std::to_string(version) + ", not 1");
        result.manifest = manifest_at(value);
        const auto key = PublicKey::parse(value.at("hub_key").get<std::string>());
        const auto signature = from_hex_array<64>(value.at("signature").get_ref<const std::string&>());
        LINKCPP_TRY(moe::check_manifest(result.manifest));
        result.model_id = moe::model_id(result.manifest);
        if (!key.ok() || !signature || !verify_signature(*key, moe::manifest_message(result.model_id), *signature)) {
            return Status(Code::corrupt, "the hub's manifest does not have the signature of its key");
        }
        result.hub_key = *key;
    } catch (const std::exception& error) {
        return Status(Code::corrupt, std::string("the hub's manifest cannot be read: ") + error.what());
    }
    return result;
}

}  // namespace linkcpp::client
