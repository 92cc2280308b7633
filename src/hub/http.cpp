#include "hub/http.h"

#include "hub/json.h"

#include <algorithm>

namespace linkcpp::hub {

namespace {

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool read_query(std::string_view text, std::map<std::string, std::string>& query) {
    while (!text.empty()) {
        const size_t end = std::min(text.find('&'), text.size());
        const std::string_view item = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (item.empty()) continue;
        const size_t equals = std::min(item.find('='), item.size());
        auto key = percent_decode(item.substr(0, equals), true);
        auto value = percent_decode(item.substr(std::min(equals + 1, item.size())), true);
        if (!key || !value || !query.emplace(std::move(*key), std::move(*value)).second) return false;
    }
    return true;
}

}  // namespace

const std::string& Request::header(const std::string& lower_case_name) const {
    static const std::string none;
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? none : found->second;
}

std::optional<std::string> Request::query_value(const std::string& key) const {
    const auto found = query.find(key);
    return found == query.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Piece> cut_pieces(const std::vector<Piece>& pieces, uint64_t begin, uint64_t end) {
    std::vector<Piece> cut;
    uint64_t position = 0;
    for (const Piece& piece : pieces) {
        const uint64_t from = std::max(begin, position), to = std::min(end, position + piece.bytes);
        if (from < to) {
            const uint64_t skipped = from - position;
            cut.push_back(
                {piece.fd, piece.memory ? piece.memory + skipped : nullptr, piece.offset + skipped, to - from});
        }
        position += piece.bytes;
    }
    return cut;
}

uint64_t size_of(const std::vector<Piece>& pieces) {
    uint64_t sum = 0;
    for (const Piece& piece : pieces)
        sum += piece.bytes;
    return sum;
}

Response error_response(int status, std::string_view code, std::string_view message, std::string_view hint) {
    return json_response({{"error", {{"code", code}, {"message", message}, {"hint", hint}}}}, status);
}

Response text_response(std::string text, const char* content_type) {
    Response response;
    response.headers = {{"Content-Type", content_type}};
    response.text = std::move(text);
    return response;
}

const char* reason_phrase(int status) {
    switch (status) {
        case 200: return "OK";
        case 201: return "Created";
        case 202: return "Accepted";
        case 204: return "No Content";
        case 206: return "Partial Content";
        case 304: return "Not Modified";
        case 400: return "Bad Request";
        case 401: return "Unauthorized";
        case 402: return "Payment Required";
        case 403: return "Forbidden";
        case 404: return "Not Found";
        case 405: return "Method Not Allowed";
        case 408: return "Request Timeout";
        case 409: return "Conflict";
        case 410: return "Gone";
        case 412: return "Precondition Failed";
        case 413: return "Content Too Large";
        case 415: return "Unsupported Media Type";
        case 416: return "Range Not Satisfiable";
        case 422: return "Unprocessable Content";
        case 429: return "Too Many Requests";
        case 431: return "Request Header Fields Too Large";
        case 500: return "Internal Server Error";
        case 501: return "Not Implemented";
        case 503: return "Service Unavailable";
        case 505: return "HTTP Version Not Supported";
        case 507: return "Insufficient Storage";
        default: return "Unknown";
    }
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
    std::string decoded;
    decoded.reserve(text.size());
    for (size_t i = 0; i < text.size(); ++i) {
        char c = text[i];
        if (c == '%') {
            if (text.size() - i < 3) return std::nullopt;
            const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
            if (high < 0 || low < 0) return std::nullopt;
            c = static_cast<char>(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        if (c == '\0') return std::nullopt;
        decoded += c;
    }
    return decoded;
}

bool read_target(std::string_view target, Request& request) {
    target = target.substr(0, target.find('#'));
    if (!target.starts_with('/')) return false;
    const size_t mark = std::min(target.find('?'), target.size());
    request.path = target.substr(0, mark);
    return read_query(target.substr(std::min(mark + 1, target.size())), request.query);
}

}  // namespace linkcpp::hub
