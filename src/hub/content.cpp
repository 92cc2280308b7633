#include "hub/content.h"

#include "hub/ranges.h"

#include <fmt/format.h>

namespace linkcpp::hub {

Response content_response(const Request& request, const Content& content) {
    const uint64_t size = size_of(content.pieces);
    if (const std::string& wanted = request.header("if-match"); !wanted.empty() && !etag_listed(wanted, content.etag)) {
        return error_response(412, "changed", "this is not what it was: its entity tag is " + content.etag,
                              "ask for the manifest again");
    }
    Response response;
    response.headers = {{"ETag", content.etag}, {"Accept-Ranges", "bytes"}, {"Cache-Control", "no-transform"}};
    if (const std::string& known = request.header("if-none-match");
        !known.empty() && etag_listed(known, content.etag)) {
        response.status = 304;
        return response;
    }
    const std::string& if_range = request.header("if-range");
    const bool same = if_range.empty() || if_range == content.etag;
    const ByteRange range = same ? parse_byte_range(request.header("range"), size) : ByteRange{};
    if (range.kind == ByteRange::Kind::unsatisfiable) {
        response = error_response(416, "range_not_satisfiable", fmt::format("this has {} bytes", size),
                                  "ask for bytes within them, or for the whole");
        response.headers.emplace_back("Content-Range", fmt::format("bytes */{}", size));
        return response;
    }
    response.headers.emplace_back("Content-Type", content.type);
    if (!content.file_name.empty())
        response.headers.emplace_back("Content-Disposition",
                                      fmt::format("attachment; filename=\"{}\"", content.file_name));
    response.keeps_pieces = content.keeps_pieces;
    if (range.kind == ByteRange::Kind::whole) {
        response.pieces = content.pieces;
    } else {
        response.status = 206;
        response.headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", range.begin, range.end - 1, size));
        response.pieces = cut_pieces(content.pieces, range.begin, range.end);
    }
    return response;
}

}  // namespace linkcpp::hub
