#include "hub/router.h"

#include "base/log.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace linkcpp::hub {

namespace {

std::vector<std::string> split(std::string_view path) {
    std::vector<std::string> segments;
    for (size_t at = 1; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        segments.emplace_back(path.substr(at, end - at));
        at = end + 1;
    }
    return segments;
}

/// Segments are decoded after they were split, so that an encoded slash is a character of a name and no way out of it.
bool matches(const std::vector<std::string>& pattern, const std::vector<std::string>& path,
             std::map<std::string, std::string>& parameters) {
    if (pattern.size() != path.size()) return false;
    parameters.clear();
    for (size_t i = 0; i < pattern.size(); ++i) {
        if (!pattern[i].starts_with('{')) {
            if (pattern[i] != path[i]) return false;
            continue;
        }
        auto value = percent_decode(path[i]);
        if (!value || value->empty()) return false;
        parameters[pattern[i].substr(1, pattern[i].size() - 2)] = std::move(*value);
    }
    return true;
}

}  // namespace

void Router::add(const std::string& method, const std::string& pattern, Handler handler) {
    add_async(method, pattern,
              [handler = std::move(handler)](const Request& request, const Reply& reply) { reply(handler(request)); });
}

void Router::add_async(const std::string& method, const std::string& pattern, AsyncHandler handler) {
    routes_.push_back({method, pattern, split(pattern), std::move(handler)});
}

void Router::handle(Request request, Reply reply) const {
    const std::vector<std::string> path = split(request.path);
    std::string allowed;
    for (const Route& route : routes_) {
        if (!matches(route.segments, path, request.parameters)) continue;
        if (route.method != request.method) {
            allowed += (allowed.empty() ? "" : ", ") + route.method + (route.method == "GET" ? ", HEAD" : "");
            continue;
        }
        try {
            route.handler(request, reply);
        } catch (const std::exception& error) {
            // Ours to find: handlers return their errors. The client learns nothing of our insides.
            log_error("{} {}: {}", route.method, route.pattern, error.what());
            reply(error_response(500, "internal", "the hub failed to answer this request", "try again later"));
        }
        return;
    }
    if (allowed.empty()) {
        return reply(error_response(404, "no_such_route", "there is nothing at this path",
                                    fmt::format("docs/openapi.yaml tells about: {}", fmt::join(routes(), ", "))));
    }
    Response response =
        error_response(405, "method_not_allowed", request.method + " is not for this path", "use one of: " + allowed);
    response.headers.emplace_back("Allow", allowed);
    reply(std::move(response));
}

std::vector<std::string> Router::routes() const {
    std::vector<std::string> list;
    for (const Route& route : routes_)
        list.push_back(route.method + " " + route.pattern);
    return list;
}

}  // namespace linkcpp::hub
