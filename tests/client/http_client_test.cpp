// The HTTP client against a server that answers what the test says, byte by byte.
#include "client/canned_server.h"
#include "client/http_client.h"

#include <gtest/gtest.h>
#include <thread>

namespace linkcpp::client {
namespace {

using namespace std::chrono_literals;
using test::CannedServer;
using test::with_length;

TEST(HttpClient, AsksAndKeepsItsConnection) {
    CannedServer server({{with_length("200 OK", "one", "X-Thing: A\r\n")}, {with_length("404 Not Found", "two")}});
    HttpClient client(server.url);
    const auto first = client.call({"POST", "/a?b=c", {{"Authorization", "Bearer t"}}, "body", {}});
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_EQ(first->status, 200);
    EXPECT_EQ(first->text, "one");
    EXPECT_EQ(first->header("x-thing"), "A");
    const auto second = client.call({.target = "/"});
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->status, 404);
    EXPECT_EQ(second->text, "two");
    EXPECT_EQ(server.n_connections(), 1u);
    const std::string request = server.requests()[0];
    EXPECT_TRUE(request.starts_with("POST /a?b=c HTTP/1.1\r\n")) << request;
    EXPECT_NE(request.find("Content-Length: 4\r\n"), std::string::npos);
    EXPECT_NE(request.find("Authorization: Bearer t\r\n"), std::string::npos);
    EXPECT_NE(request.find("Host: 127.0.0.1:" + std::to_string(server.url.port)), std::string::npos);
}

TEST(HttpClient, AsksAgainWhereAKeptConnectionWasClosed) {
    CannedServer server({{with_length("200 OK", "one"), true}, {with_length("200 OK", "two")}});
    HttpClient client(server.url);
    ASSERT_TRUE(client.call({.target = "/"}).ok());
    const auto second = client.call({.target = "/"});
    ASSERT_TRUE(second.ok()) << second.status().message();
    EXPECT_EQ(second->text, "two");
    EXPECT_EQ(server.n_connections(), 2u);
}

TEST(HttpClient, SaysWhatIsWrong) {
    const auto code_of = [](const std::string& answer) {
        CannedServer server({{answer, true}});
        HttpClient client(server.url, {.max_text = 1000});
        return client.call({.target = "/"}).status().code();
    };
    EXPECT_EQ(code_of("SSH-2.0-OpenSSH\r\n\r\n"), Code::corrupt);
    EXPECT_EQ(code_of("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), Code::corrupt);
    EXPECT_EQ(code_of("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"), Code::unavailable);
    EXPECT_EQ(code_of(""), Code::unavailable);
    EXPECT_EQ(code_of(with_length("200 OK", std::string(1001, 'x'))), Code::exhausted);
    EXPECT_EQ(code_of("HTTP/1.1 200 OK\r\nA: " + std::string(100'000, 'x') + "\r\n\r\n"), Code::corrupt);
    CannedServer gone({});
    gone.stop_listening();
    EXPECT_EQ(HttpClient(gone.url).call({.target = "/"}).status().code(), Code::unavailable);
}

TEST(HttpClient, DoesNotWaitForEver) {
    CannedServer server({{"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"}});
    HttpClient client(server.url, {.silence_limit = 50ms});
    EXPECT_EQ(client.call({.target = "/"}).status().code(), Code::timeout);
    EXPECT_EQ(client.call({.target = "/"}).status().code(), Code::timeout);
}

TEST(HttpClient, DoesNotFollowRedirects) {
    CannedServer server({{with_length("302 Found", "", "Location: http://127.0.0.1:1/\r\n")}});
    HttpClient client(server.url);
    const auto answer = client.call({"GET", "/", {{"Authorization", "Bearer t"}}, "", {}});
    ASSERT_TRUE(answer.ok());
    EXPECT_EQ(answer->status, 302);
    EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpClient, StreamsToASink) {
    const std::string body(3'000'000, 'b');
    CannedServer server({{with_length("200 OK", body)}, {with_length("200 OK", body)}, {with_length("416 No", "why")}});
    HttpClient client(server.url);
    std::string got;
    const BodySink keep = [&](const HttpAnswer& head, ByteSpan piece) -> Status {
        EXPECT_EQ(head.header("content-length"), "3000000");
        got.append(piece.begin(), piece.end());
        return got.size() > 4'000'000 ? Status(Code::exhausted, "enough") : Status();
    };
    ASSERT_TRUE(client.stream({.target = "/"}, keep).ok());
    EXPECT_EQ(got, body);
    EXPECT_EQ(client.stream({.target = "/"}, keep).status().message(), "enough");
    const auto error = client.stream({.target = "/"}, keep);
    ASSERT_TRUE(error.ok());
    EXPECT_EQ(error->text, "why") << "an error is no body";
}

TEST(HttpClient, CanBeStopped) {
    CannedServer server({});
    std::atomic<bool> stop = false;
    HttpClient client(server.url, {.stop = &stop});
    std::thread other([&] {
        while (server.requests().empty())
            std::this_thread::yield();
        stop = true;
    });
    EXPECT_EQ(client.call({.target = "/"}).status().code(), Code::unavailable);
    other.join();
    EXPECT_EQ(client.call({.target = "/"}).status().code(), Code::unavailable);
    EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HubUrl, ReadsWhatPeopleType) {
    EXPECT_EQ(*HubUrl::parse("http://h:1"), (HubUrl{false, "h", 1}));
    EXPECT_EQ(*HubUrl::parse("https://h"), (HubUrl{true, "h", 443}));
    EXPECT_EQ(*HubUrl::parse("http://h/"), (HubUrl{false, "h", 80}));
    EXPECT_EQ(*HubUrl::parse("h:7"), (HubUrl{false, "h", 7}));
    EXPECT_EQ(*HubUrl::parse("h"), (HubUrl{false, "h", 19000}));
    EXPECT_EQ(HubUrl::parse("http://[::1]:5")->str(), "http://[::1]:5");
    EXPECT_EQ(HubUrl::parse("http://[::1]")->port, 80);
    for (const char* bad :
         {"", "http://", "ftp://h", "http://h/path", "http://u:p@h", "http://h:0", "http://h:99999", "h?x", "a b"})
        EXPECT_FALSE(HubUrl::parse(bad).ok()) << bad;
}

}  // namespace
}  // namespace linkcpp::client
