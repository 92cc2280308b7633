#include "hub/json_fields.h"

#include "base/hex.h"

#include <algorithm>

namespace linkcpp::hub {

Fields::Fields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("", "must be an object");
}

void Fields::fail(const std::string& name, const std::string& what) {
    if (!status_.ok()) return;
    const std::string path = where_ + (where_.empty() || name.empty() ? "" : ".") + name;
    status_ = {Code::invalid_argument, path + " " + what};
}

bool Fields::has(const char* name) const { return object_.is_object() && object_.contains(name); }

const nlohmann::json* Fields::find(const char* name, bool required) {
    if (has(name)) return &object_[name];
    if (required) fail(name, "is missing");
    return nullptr;
}

std::string Fields::text(const char* name, size_t max_bytes) {
    const nlohmann::json* value = find(name, true);
    if (value == nullptr) return "";
    if (!value->is_string() || value->get_ref<const std::string&>().size() > max_bytes) {
        fail(name, "must be a text of at most " + std::to_string(max_bytes) + " bytes");
        return "";
    }
    return *value;
}

std::string Fields::text_or(const char* name, std::string otherwise, size_t max_bytes) {
    return has(name) ? text(name, max_bytes) : otherwise;
}

namespace {

bool is_whole(const nlohmann::json& value, uint64_t max) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= max;
}

}  // namespace

uint64_t Fields::number(const char* name, uint64_t max) {
    const nlohmann::json* value = find(name, true);
    if (value == nullptr) return 0;
    if (!is_whole(*value, max)) {
        fail(name, "must be a whole number from 0 to " + std::to_string(max));
        return 0;
    }
    return *value;
}

uint64_t Fields::number_or(const char* name, uint64_t otherwise, uint64_t max) {
    return has(name) ? number(name, max) : otherwise;
}

double Fields::real_or(const char* name, double otherwise) {
    const nlohmann::json* value = find(name, false);
    if (value == nullptr) return otherwise;
    const double number = value->is_number() ? value->get<double>() : -1;
    if (!(number >= 0 && number <= static_cast<double>(max_json_number))) {
        fail(name, "must be a number from 0 to " + std::to_string(max_json_number));
        return otherwise;
    }
    return number;
}

bool Fields::flag_or(const char* name, bool otherwise) {
    const nlohmann::json* value = find(name, false);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) {
        fail(name, "must be true or false");
        return otherwise;
    }
    return *value;
}

std::array<uint64_t, 2> Fields::pair(const char* name, uint64_t max) {
    const nlohmann::json* value = find(name, true);
    if (value == nullptr) return {};
    if (!value->is_array() || value->size() != 2 || !is_whole((*value)[0], max) || !is_whole((*value)[1], max)) {
        fail(name, "must be two whole numbers [begin, end] up to " + std::to_string(max));
        return {};
    }
    return {(*value)[0], (*value)[1]};
}

std::vector<const nlohmann::json*> Fields::list(const char* name, size_t max_size, bool required) {
    const nlohmann::json* value = find(name, required);
    std::vector<const nlohmann::json*> elements;
    if (value == nullptr) return elements;
    if (!value->is_array() || value->size() > max_size) {
        fail(name, "must be a list of at most " + std::to_string(max_size));
        return elements;
    }
    for (const nlohmann::json& element : *value)
        elements.push_back(&element);
    return elements;
}

void Fields::read_hex(const char* name, uint8_t* bytes, size_t size) {
    const std::optional<Bytes> given = from_hex(text(name, 2 * size));
    if (given && given->size() == size) {
        std::copy(given->begin(), given->end(), bytes);
    } else {
        fail(name, "must be " + std::to_string(2 * size) + " hexadecimal digits");
    }
}

}  // namespace linkcpp::hub
