#pragma once
// HTTP as the rest of the hub sees it: what a client asked, what it is answered. No Boost here; hub/server.h does the
// talking. Plain values, used by one thread at a time.

#include "base/bytes.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linkcpp::hub {

struct Request {
    std::string method;                             ///< "GET", "POST", …; a HEAD arrives as GET, its body is not sent
    std::string path;                               ///< as it was sent, without the query
    std::map<std::string, std::string> parameters;  ///< what stood in the {…} of the route, decoded
    std::map<std::string, std::string> query;       ///< decoded; no key is given twice
    std::map<std::string, std::string> headers;     ///< names in lower case; the first of several
    std::string body;                               ///< at most ServerSettings::max_body_bytes
    std::string peer;                               ///< "127.0.0.1:40312"

    /// The header's value, or "".
    const std::string& header(const std::string& lower_case_name) const;
    std::optional<std::string> query_value(const std::string& key) const;
};

/// A part of a body that is not copied: bytes in memory, or of a file.
struct Piece {
    int fd = -1;                      ///< of a file, or -1: memory
    const uint8_t* memory = nullptr;  ///< of `bytes`
    uint64_t offset = 0;              ///< in the file
    uint64_t bytes = 0;
};

/// Bytes [begin, end) of what the pieces are together.
std::vector<Piece> cut_pieces(const std::vector<Piece>& pieces, uint64_t begin, uint64_t end);
uint64_t size_of(const std::vector<Piece>& pieces);

struct Response {
    int status = 200;
    /// Without Content-Length, Date, Server and Connection, which the server adds.
    std::vector<std::pair<std::string, std::string>> headers;
    std::string text;                          ///< the body, or its beginning
    std::vector<Piece> pieces;                 ///< what follows `text`
    std::shared_ptr<const void> keeps_pieces;  ///< keeps files and memory of `pieces` alive until they were sent
};

/// {"error": {"code", "message", "hint"}}. `message` says what is wrong, `hint` what to do; text from outside is made valid UTF-8.
Response error_response(int status, std::string_view code, std::string_view message, std::string_view hint = "");
Response text_response(std::string text, const char* content_type = "text/plain; charset=utf-8");
/// "Not Found"
const char* reason_phrase(int status);

/// Answers a request, once. Any thread, at any time later; a reply that is dropped without a call answers 500.
using Reply = std::function<void(Response)>;

/// Percent-decodes; `plus_is_space` for queries. nullopt: a damaged escape, or a zero byte.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space = false);

/// Splits "/path?key=value" into request.path and request.query. False: not a target we understand.
bool read_target(std::string_view target, Request& request);

}  // namespace linkcpp::hub
