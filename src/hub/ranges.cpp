#include "hub/ranges.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace linkcpp::hub {

namespace {

bool all_digits(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// The largest number for one that is larger.
uint64_t number_or_largest(std::string_view digits) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() ? value : UINT64_MAX;
}

std::optional<int> index_number(std::string_view text) {
    if (!all_digits(text) || text.size() > 9) return std::nullopt;
    return static_cast<int>(number_or_largest(text));
}

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

Result<std::pair<int, int>> parse_index_range(std::string_view text) {
    const Status wrong(Code::invalid_argument,
                       "write BEGIN:END, both numbers, the end exclusive; either may be left out");
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        const auto only = index_number(text);
        if (!only) return wrong;
        return std::pair(*only, *only + 1);
    }
    std::pair<int, int> range(0, -1);
    if (colon > 0) {
        const auto begin = index_number(text.substr(0, colon));
        if (!begin) return wrong;
        range.first = *begin;
    }
    if (colon + 1 < text.size()) {
        const auto end = index_number(text.substr(colon + 1));
        if (!end) return wrong;
        range.second = *end;
        if (range.second <= range.first) return {Code::invalid_argument, "this range is empty: the end is exclusive"};
    }
    return range;
}

ByteRange parse_byte_range(std::string_view header, uint64_t size) {
    const ByteRange whole{}, unsatisfiable{ByteRange::Kind::unsatisfiable};
    constexpr std::string_view unit = "bytes=";
    if (!header.starts_with(unit) || header.find(',') != std::string_view::npos) return whole;
    const std::string_view text = trim(header.substr(unit.size()));
    const size_t dash = text.find('-');
    if (dash == std::string_view::npos) return whole;
    const std::string_view first = text.substr(0, dash), last = text.substr(dash + 1);
    if ((!first.empty() && !all_digits(first)) || (!last.empty() && !all_digits(last))) return whole;
    if (first.empty()) {
        if (last.empty()) return whole;
        const uint64_t suffix = std::min(number_or_largest(last), size);
        if (suffix == 0) return unsatisfiable;
        return {ByteRange::Kind::part, size - suffix, size};
    }
    const uint64_t begin = number_or_largest(first);
    if (!last.empty() && number_or_largest(last) < begin) return whole;
    if (begin >= size) return unsatisfiable;
    const uint64_t end = last.empty() ? size : std::min(number_or_largest(last), size - 1) + 1;
    return {ByteRange::Kind::part, begin, end};
}

bool etag_listed(std::string_view list, std::string_view etag) {
    while (!list.empty()) {
        const size_t comma = std::min(list.find(','), list.size());
        const std::string_view item = trim(list.substr(0, comma));
        if (item == etag || item == "*") return true;
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return false;
}

}  // namespace linkcpp::hub
