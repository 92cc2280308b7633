#include "cmd/config_file.h"

#include "cmd/join_token.h"
#include "cmd/values.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

namespace linkcpp::cmd {

namespace {

using nlohmann::ordered_json;

Status invalid(std::string message) { return {Code::invalid_argument, std::move(message)}; }

/// The JSON library keeps one of two equal keys without a word; a person meant both.
class DuplicateKeys {
  public:
    bool operator()(int, ordered_json::parse_event_t event, const ordered_json& value) {
        switch (event) {
            case ordered_json::parse_event_t::object_start: open_.emplace_back(); break;
            case ordered_json::parse_event_t::object_end: open_.pop_back(); break;
            case ordered_json::parse_event_t::key:
                if (!open_.back().insert(value.get<std::string>()).second && found.empty())
                    found = value.get<std::string>();
                break;
            default: break;
        }
        return true;
    }
    std::string found;

  private:
    std::vector<std::set<std::string>> open_;
};

Result<ordered_json> parse_json(const std::string& text) {
    DuplicateKeys duplicates;
    try {
        auto json = ordered_json::parse(text, std::ref(duplicates));
        if (!duplicates.found.empty()) return invalid("the key '" + duplicates.found + "' is there twice");
        return json;
    } catch (const ordered_json::exception& error) {
        return invalid(std::string("not JSON: ") + error.what());
    }
}

Status read_workers(const ordered_json& value, backend::ModelSettings& settings) {
    if (!value.is_array()) return invalid("workers must be a list of \"HOST:PORT\"");
    settings.workers.clear();
    for (const ordered_json& item : value) {
        if (!item.is_string()) return invalid("workers must be a list of \"HOST:PORT\"");
        auto address = net::Address::parse(item.get<std::string>());
        if (!address.ok()) return address.status().in("workers");
        if (address->port == 0) return invalid("workers: '" + item.get<std::string>() + "' has no port");
        if (std::find(settings.workers.begin(), settings.workers.end(), *address) != settings.workers.end())
            return invalid("workers: '" + item.get<std::string>() + "' is there twice");
        settings.workers.push_back(std::move(*address));
    }
    return {};
}

Status read_settings(const ordered_json& entry, const std::string& folder, backend::ModelSettings& settings) {
    if (!entry.is_object()) return invalid("must be an object");
    static const std::set<std::string> texts = {"hub",    "hub_model", "hub_data", "hub_key",     "join_token",
                                                "ca",     "wait",      "layers",   "fallback",    "mode",
                                                "policy", "audit",     "model",    "expert_cache"};
    static const std::set<std::string> paths = {"model", "hub_data", "join_token", "ca"};
    for (const auto& [key, value] : entry.items()) {
        if (key == "file") continue;
        if (key == "workers") {
            LINKCPP_TRY(read_workers(value, settings));
            continue;
        }
        if (!texts.contains(key))
            return invalid(
                "unknown key '" + key +
                "'; it can be workers, hub, hub_model, hub_data, hub_key, join_token, ca, wait, layers, fallback, "
                "mode, policy, audit, model, expert_cache");
        if (!value.is_string()) return invalid(key + " must be a string");
        auto text = value.get<std::string>();
        if (paths.contains(key) && !text.empty() && text[0] != '/') text = folder + "/" + text;
        LINKCPP_TRY(set_model_setting(settings, key, text).in(key));
    }
    return {};
}

Status read_models(const ordered_json& list, const std::string& folder, backend::Config& config) {
    if (!list.is_array()) return invalid("models must be a list of objects");
    for (size_t i = 0; i < list.size(); ++i) {
        const std::string where = fmt::format("models[{}]", i);
        const ordered_json& entry = list[i];
        if (!entry.is_object()) return invalid(where + " must be an object");
        if (!entry.contains("file")) return invalid(where + " lacks the key 'file', a pattern like \"draft-*.gguf\"");
        if (!entry["file"].is_string() || entry["file"].get<std::string>().empty())
            return invalid(where + ".file must be a pattern like \"draft-*.gguf\"");
        const auto pattern = entry["file"].get<std::string>();
        // A pattern is compared with the file's name alone; one with a folder would never match.
        if (pattern.find('/') != std::string::npos)
            return invalid(where + ".file is the name of a file, without folders");
        for (const auto& [other, settings] : config.models) {
            if (other == pattern) return invalid(where + ".file: '" + pattern + "' is there twice");
        }
        backend::ModelSettings settings = config.defaults;
        LINKCPP_TRY(read_settings(entry, folder, settings).in(where));
        config.models.emplace_back(pattern, std::move(settings));
    }
    return {};
}

}  // namespace

Status set_model_setting(backend::ModelSettings& settings, const std::string& key, const std::string& text) {
    if (key == "hub") {
        settings.hub.url.reset();
        if (text.empty()) return {};
        const auto url = client::HubUrl::parse(text);
        if (!url.ok()) return url.status();
        settings.hub.url = *url;
    } else if (key == "hub_model") {
        settings.hub.model = text;
    } else if (key == "hub_data") {
        settings.hub.folder = text;
    } else if (key == "hub_key") {
        const auto hub_key = PublicKey::parse(text);
        if (!hub_key.ok()) return hub_key.status();
        settings.hub.key = *hub_key;
    } else if (key == "join_token") {
        auto token = read_join_token(text);
        if (!token.ok()) return token.status();
        settings.hub.join_token = std::move(*token);
    } else if (key == "ca") {
        settings.hub.ca_file = text;
    } else if (key == "wait") {
        const auto wait = parse_seconds(text);
        if (!wait.ok()) return wait.status();
        settings.hub.wait = *wait;
    } else if (key == "layers") {
        const auto range = parse_range(text, INT32_MAX);
        if (!range.ok()) return range.status();
        std::tie(settings.layer_begin, settings.layer_end) = *range;
    } else if (key == "fallback") {
        if (text != "auto" && text != "local" && text != "none")
            return invalid("'" + text + "' is not a fallback; it can be auto, local or none");
        settings.fallback = text == "local"  ? backend::Fallback::local
                            : text == "none" ? backend::Fallback::none
                                             : backend::Fallback::automatic;
    } else if (key == "mode") {
        if (text != "exact" && text != "sums") return invalid("'" + text + "' is not a mode; it can be exact or sums");
        settings.split = text == "sums" ? dispatch::SplitMode::sums : dispatch::SplitMode::exact;
    } else if (key == "policy") {
        if (text != "exact" && text != "tolerant")
            return invalid("'" + text + "' is not a policy; it can be exact or tolerant");
        settings.policy = text == "exact" ? backend::Policy::exact : backend::Policy::tolerant;
    } else if (key == "audit") {
        const auto share = parse_share(text);
        if (!share.ok()) return share.status();
        settings.audit = *share;
    } else if (key == "expert_cache") {
        const auto bytes = parse_size(text);
        if (!bytes.ok()) return bytes.status();
        settings.expert_cache_bytes = *bytes;
    } else if (key == "model") {
        settings.model_path = text;
    } else {
        return invalid("unknown setting '" + key + "'");
    }
    return {};
}

Status parse_config(const std::string& text, const std::string& folder, const OverrideDefaults& override_defaults,
                    backend::Config& config) {
    const auto json = parse_json(text);
    if (!json.ok()) return json.status();
    if (!json->is_object()) return invalid("the file must be a JSON object with 'default' and 'models'");
    for (const auto& [key, value] : json->items()) {
        if (key != "default" && key != "models")
            return invalid("unknown key '" + key + "'; it can be default or models");
    }
    if (json->contains("default")) {
        if ((*json)["default"].is_object() && (*json)["default"].contains("file"))
            return invalid("default: unknown key 'file'; the default is for every model that 'models' does not name");
        LINKCPP_TRY(read_settings((*json)["default"], folder, config.defaults).in("default"));
    }
    if (override_defaults) LINKCPP_TRY(override_defaults(config.defaults));
    return json->contains("models") ? read_models((*json)["models"], folder, config) : Status();
}

Status read_config_file(const std::string& path, const OverrideDefaults& override_defaults, backend::Config& config) {
    std::ifstream file(path, std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (!file) return {Code::io, path + " cannot be read: " + std::strerror(errno)};
    const size_t slash = path.rfind('/');
    return parse_config(text, slash == std::string::npos ? "." : path.substr(0, slash + 1), override_defaults, config)
        .in(path);
}

}  // namespace linkcpp::cmd
