#pragma once
// Which function answers which request. Routes are added before the server starts; after that the router is immutable and
// any thread may call handle(). Handlers run on the server's handler threads, several at once: what they share they lock.
// They may wait for a disk, but not for a client: what waits (long polls) takes a Reply and returns.

#include "hub/http.h"

namespace linkcpp::hub {

class Router {
  public:
    using Handler = std::function<Response(const Request&)>;
    using AsyncHandler = std::function<void(const Request&, Reply)>;

    /// `pattern`: "/api/nodes/{id}/ledger"; a {…} stands for one whole segment, which arrives decoded in
    /// request.parameters. Method GET answers HEAD as well.
    void add(const std::string& method, const std::string& pattern, Handler handler);
    /// For answers that come later; the request is copied if it is needed then.
    void add_async(const std::string& method, const std::string& pattern, AsyncHandler handler);

    /// Answers 404 and 405 itself, 500 when a handler throws. Fills request.parameters.
    void handle(Request request, Reply reply) const;

    /// "GET /healthz", in the order they were added.
    std::vector<std::string> routes() const;

  private:
    struct Route {
        std::string method, pattern;
        std::vector<std::string> segments;
        AsyncHandler handler;
    };
    std::vector<Route> routes_;
};

}  // namespace linkcpp::hub
