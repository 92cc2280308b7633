// Routes, targets and pieces without a server.

#include "hub/json.h"
#include "hub/router.h"

#include <gtest/gtest.h>

namespace linkcpp::hub {
namespace {

Response ask(const Router& router, const std::string& method, const std::string& target) {
    Request request;
    request.method = method;
    EXPECT_TRUE(read_target(target, request)) << target;
    Response answer;
    answer.status = 0;
    router.handle(std::move(request), [&](Response response) { answer = std::move(response); });
    return answer;
}

Router sample() {
    Router router;
    router.add("GET", "/nodes/{id}/ledger", [](const Request& request) {
        return text_response(request.parameters.at("id") + "|" + request.query_value("from").value_or("-"));
    });
    router.add("POST", "/nodes", [](const Request&) { return text_response("new"); });
    router.add("GET", "/broken", [](const Request&) -> Response { throw std::runtime_error("secret"); });
    return router;
}

TEST(Router, GivesSegmentsDecoded) {
    const Router router = sample();
    EXPECT_EQ(ask(router, "GET", "/nodes/a%20b/ledger?from=x%2By+z").text, "a b|x+y z");
    EXPECT_EQ(ask(router, "POST", "/nodes").text, "new");
}

TEST(Router, AnEncodedSlashIsPartOfAName) {
    const Router router = sample();
    EXPECT_EQ(ask(router, "GET", "/nodes/..%2F..%2Fetc/ledger").text, "../../etc|-");
    EXPECT_EQ(ask(router, "GET", "/nodes/../ledger").text, "..|-");
    EXPECT_EQ(ask(router, "GET", "/nodes//ledger").status, 404);
    EXPECT_EQ(ask(router, "GET", "/nodes/a%00b/ledger").status, 404);
    EXPECT_EQ(ask(router, "GET", "/nodes/a%g0/ledger").status, 404);
}

TEST(Router, KnowsWhatIsAllowed) {
    const Response response = ask(sample(), "DELETE", "/nodes");
    EXPECT_EQ(response.status, 405);
    EXPECT_EQ(response.headers.back(), (std::pair<std::string, std::string>("Allow", "POST")));
    EXPECT_EQ(ask(sample(), "GET", "/").status, 404);
}

TEST(Router, AHandlerThatThrowsTellsNothing) {
    const Response response = ask(sample(), "GET", "/broken");
    EXPECT_EQ(response.status, 500);
    EXPECT_EQ(response.text.find("secret"), std::string::npos);
}

TEST(Target, RefusesWhatCannotBeRead) {
    Request request;
    EXPECT_FALSE(read_target("*", request));
    EXPECT_FALSE(read_target("http://host/", request));
    EXPECT_FALSE(read_target("/a?x=%", request));
    EXPECT_FALSE(read_target("/a?x=%00", request));
    request = {};
    EXPECT_FALSE(read_target("/a?x=1&y=2&x=1", request));
    request = {};
    EXPECT_TRUE(read_target("/a?x=&&y#z", request));
    EXPECT_EQ(request.query, (std::map<std::string, std::string>{{"x", ""}, {"y", ""}}));
}

TEST(Pieces, AreCutAcrossTheirBorders) {
    const uint8_t memory[10] = {};
    const std::vector<Piece> pieces = {{-1, memory, 0, 10}, {5, nullptr, 100, 20}, {6, nullptr, 0, 5}};
    EXPECT_EQ(size_of(pieces), 35u);
    const auto cut = cut_pieces(pieces, 8, 33);
    ASSERT_EQ(cut.size(), 3u);
    EXPECT_EQ(cut[0].memory, memory + 8);
    EXPECT_EQ(cut[0].bytes, 2u);
    EXPECT_EQ(cut[1].offset, 100u);
    EXPECT_EQ(cut[1].bytes, 20u);
    EXPECT_EQ(cut[2].bytes, 3u);
    EXPECT_EQ(size_of(cut_pieces(pieces, 12, 13)), 1u);
    EXPECT_EQ(cut_pieces(pieces, 12, 13)[0].offset, 102u);
    EXPECT_TRUE(cut_pieces(pieces, 35, 35).empty());
}

TEST(Json, BodiesFromOutsideAreChecked) {
    EXPECT_TRUE(parse_json_object(R"({"a": [1, {"b": null}]})").ok());
    EXPECT_FALSE(parse_json_object("").ok());
    EXPECT_FALSE(parse_json_object("[1]").ok());
    EXPECT_FALSE(parse_json_object("{\"a\": 1} x").ok());
    EXPECT_FALSE(parse_json_object("{\"a\": \"\xff\"}").ok());
    EXPECT_FALSE(parse_json_object("{\"a\":" + std::string(60000, '[')).ok());
}

TEST(Json, TextThatIsNotUtf8DoesNotThrow) {
    EXPECT_NE(error_response(400, "x", "\xff").text.find("\xef\xbf\xbd"), std::string::npos);
}

}  // namespace
}  // namespace linkcpp::hub
