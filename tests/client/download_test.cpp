// Downloads that are cut, resumed, refused; and hubs that have another version meanwhile.
#include "client/canned_server.h"
#include "client/download.h"
#include "moe/files.h"

namespace linkcpp::client {
namespace {

using namespace std::chrono_literals;
using test::CannedServer;

const std::string content = [] {
    std::string text;
    for (int i = 0; i < 100'000; ++i)
        text += static_cast<char>('a' + i % 1009 * (i % 1009) % 23);
    return text;
}();

std::string whole(const std::string& etag, size_t sent) {
    return "HTTP/1.1 200 OK\r\nETag: \"" + etag + "\"\r\nContent-Length: " + std::to_string(content.size()) +
           "\r\n\r\n" + content.substr(0, sent);
}
std::string rest(size_t from, size_t sent) {
    return "HTTP/1.1 206 Partial Content\r\nETag: \"v1\"\r\nContent-Length: " + std::to_string(content.size() - from) +
           "\r\n\r\n" + content.substr(from, sent);
}

class DownloadTest : public testing::Test {
  protected:
    Status get(const CannedServer& server, int max_failures = 3) {
        const DownloadSettings settings{.first_backoff = 1ms, .longest_backoff = 2ms, .max_failures = max_failures};
        return download(server.url, "/file", path, settings, arrived, cancelled);
    }
    std::string got() const {
        const Bytes bytes = test::read_file(path);
        return std::string(bytes.begin(), bytes.end());
    }
    bool final_name_exists() const { return std::filesystem::exists(path); }

    test::TempFolder folder;
    const std::string path = folder / "slice.gguf";
    std::atomic<uint64_t> arrived = 0;
    std::atomic<bool> cancelled = false;
};

TEST_F(DownloadTest, GoesOnWhereItWasCut) {
    CannedServer server({{whole("v1", 30'000), true}, {rest(30'000, 20'000), true}, {rest(50'000, 50'000)}});
    ASSERT_TRUE(get(server).ok());
    EXPECT_EQ(got(), content);
    EXPECT_EQ(arrived, content.size());
    EXPECT_EQ(folder.n_files(), 1u);
    const auto requests = server.requests();
    ASSERT_EQ(requests.size(), 3u);
    EXPECT_EQ(requests[0].find("Range:"), std::string::npos);
    EXPECT_NE(requests[1].find("Range: bytes=30000-\r\n"), std::string::npos) << requests[1];
    EXPECT_NE(requests[2].find("If-Range: \"v1\"\r\n"), std::string::npos);
}

TEST_F(DownloadTest, GoesOnInAnotherProcess) {
    CannedServer first({{whole("v1", 60'000), true}, {"", true}, {"", true}, {"", true}});
    EXPECT_EQ(get(first).code(), Code::unavailable);
    EXPECT_FALSE(final_name_exists());
    CannedServer second({{rest(60'000, 40'000)}});
    ASSERT_TRUE(get(second).ok());
    EXPECT_EQ(got(), content);
    EXPECT_NE(second.requests()[0].find("Range: bytes=60000-\r\n"), std::string::npos);
}

TEST_F(DownloadTest, BeginsAnewWhereTheHubHasAnotherVersion) {
    CannedServer server({{whole("v0", 30'000), true}, {whole("v1", 100'000)}});
    ASSERT_TRUE(get(server).ok());
    EXPECT_EQ(got(), content);
    CannedServer shorter({{whole("v1", 50'000), true},
                          {"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"},
                          {whole("v2", 100'000)}});
    std::filesystem::remove(path);
    ASSERT_TRUE(get(shorter).ok());
    EXPECT_EQ(got(), content);
}

TEST_F(DownloadTest, GivesUpInTime) {
    CannedServer refusing({{"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"}});
    EXPECT_EQ(get(refusing).code(), Code::not_found);
    EXPECT_EQ(refusing.requests().size(), 1u);
    CannedServer busy({{"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"}, {whole("v1", 100'000)}});
    EXPECT_TRUE(get(busy).ok());
    std::filesystem::remove(path);
    CannedServer gone({});
    gone.stop_listening();
    EXPECT_EQ(get(gone).code(), Code::unavailable);
    cancelled = true;
    EXPECT_EQ(get(busy).code(), Code::unavailable);
    EXPECT_FALSE(final_name_exists());
}

}  // namespace
}  // namespace linkcpp::client
