#pragma once
// Large things over HTTP: what does not change under its entity tag, whole or one range of it, under conditions. Pure.

#include "hub/http.h"

namespace linkcpp::hub {

struct Content {
    std::vector<Piece> pieces;
    std::shared_ptr<const void> keeps_pieces;
    std::string etag;  ///< strong, with its quotes: other bytes, other tag
    std::string type = "application/octet-stream";
    std::string file_name;  ///< what a browser or `curl -OJ` calls it; "" for none
};

/// 200, 206, 304, 412 or 416, by Range, If-Range, If-Match and If-None-Match.
Response content_response(const Request& request, const Content& content);

}  // namespace linkcpp::hub
