#include "cmd/values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace linkcpp::cmd {

namespace {

std::optional<int> number(const std::string& text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
    return value;
}

}  // namespace

Result<std::pair<int, int>> parse_range(const std::string& text, int end) {
    const size_t colon = text.find(':');
    const std::string first = text.substr(0, colon);
    std::optional<int> a = first.empty() && colon != std::string::npos ? 0 : number(first);
    std::optional<int> b = a ? std::optional<int>(*a + 1) : std::nullopt;
    if (colon != std::string::npos) {
        const std::string last = text.substr(colon + 1);
        b = last.empty() ? end : number(last);
    }
    if (!a || !b || *a >= *b)
        return {Code::invalid_argument,
                "'" + text + "' is not a range; write a:b, counted from 0, b not included (0:4 is 0, 1, 2, 3)"};
    return std::pair{*a, *b};
}

Result<uint64_t> parse_size(const std::string& text) {
    double value = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    std::string unit;
    for (const char* c = rest; c != text.data() + text.size(); ++c) {
        if (std::isspace(static_cast<unsigned char>(*c)) == 0)
            unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    }
    const bool binary = unit.ends_with("ib");
    if (binary)
        unit.resize(unit.size() - 2);
    else if (unit.ends_with("b"))
        unit.resize(unit.size() - 1);
    const size_t letter = std::string("kmgt").find(unit);
    const size_t power = unit.empty() ? 0 : letter + 1;
    const double scale = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power));
    if (error != std::errc() || unit.size() > 1 || letter == std::string::npos || (binary && power == 0) ||
        !(value >= 0) || value * scale > 9e18) {
        return {Code::invalid_argument, "'" + text + "' is not a size; write 512M, 2G, 1.5GB or a number of bytes"};
    }
    return static_cast<uint64_t>(value * scale);
}

Result<double> parse_share(const std::string& text) {
    const auto value_of = [](std::string_view digits) {
        double value = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc() && end == digits.data() + digits.size() ? value : std::nan("");
    };
    const size_t slash = text.find('/');
    double share = value_of(std::string_view(text).substr(0, slash));
    if (slash != std::string::npos) share /= value_of(std::string_view(text).substr(slash + 1));
    if (!(share >= 0 && share <= 1))
        return {Code::invalid_argument, "'" + text + "' is not a share; write 0, 0.01, 1/256 or 1"};
    return share;
}

Result<Duration> parse_seconds(const std::string& text) {
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 86'400)
        return {Code::invalid_argument, "'" + text + "' is not a number of seconds; write 0 to 86400"};
    return Duration(std::chrono::seconds(value));
}

Result<std::vector<net::Address>> parse_addresses(const std::string& text) {
    std::vector<net::Address> addresses;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(',', begin), text.size());
        const std::string item = text.substr(begin, end - begin);
        begin = end + 1;
        if (item.empty()) continue;
        auto address = net::Address::parse(item);
        if (!address.ok()) return address.status();
        if (std::find(addresses.begin(), addresses.end(), *address) == addresses.end())
            addresses.push_back(std::move(*address));
    }
    return addresses;
}

}  // namespace linkcpp::cmd
