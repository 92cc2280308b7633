#pragma once
// Fields of a JSON object from outside: the right type and within bounds, or a sentence that names the field. Pure functions.

#include "base/status.h"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace linkcpp::hub {

/// The largest whole number that every JSON reader takes as it is.
constexpr uint64_t max_json_number = uint64_t{1} << 53;

/// Reads field after field; the first that is wrong is kept as status(), and what is read after it does not matter.
class Fields {
  public:
    /// `object` outlives it; anything but an object is an error at once. `where`: e.g. "holds[3]", for messages.
    explicit Fields(const nlohmann::json& object, std::string where = "");

    const Status& status() const { return status_; }
    bool has(const char* name) const;

    std::string text(const char* name, size_t max_bytes = 200);
    std::string text_or(const char* name, std::string otherwise, size_t max_bytes = 200);
    uint64_t number(const char* name, uint64_t max = max_json_number);
    uint64_t number_or(const char* name, uint64_t otherwise, uint64_t max = max_json_number);
    /// Not negative, up to max_json_number.
    double real_or(const char* name, double otherwise);
    bool flag_or(const char* name, bool otherwise);
    /// [a, b] of whole numbers.
    std::array<uint64_t, 2> pair(const char* name, uint64_t max = max_json_number);
    /// The elements of an array, none when the field is missing and need not be there.
    std::vector<const nlohmann::json*> list(const char* name, size_t max_size, bool required = true);
    /// N bytes as hexadecimal digits.
    template <size_t N>
    std::array<uint8_t, N> hex(const char* name) {
        std::array<uint8_t, N> bytes{};
        read_hex(name, bytes.data(), N);
        return bytes;
    }
    /// Records an error of the caller's own.
    void fail(const std::string& name, const std::string& what);

  private:
    const nlohmann::json* find(const char* name, bool required);
    void read_hex(const char* name, uint8_t* bytes, size_t size);

    const nlohmann::json& object_;
    const std::string where_;
    Status status_;
};

}  // namespace linkcpp::hub
