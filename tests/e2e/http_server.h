#pragma once
// A llama-server that the test talks to with curl.

#include "support/process.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>

namespace linkcpp::test {

/// A free port of loopback, as good as nobody else takes it before the server does.
inline std::string free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    close(fd);
    return std::to_string(ntohs(address.sin_port));
}

/// Runs `command` with a port of its own added; url is "" when it did not come up.
struct HttpServer {
    HttpServer(std::vector<std::string> command, const Environment& environment) {
        const std::string port = free_port();
        command.insert(command.end(), {"--host", "127.0.0.1", "--port", port});
        process = std::make_unique<Process>(command, environment);
        const std::string base = "http://127.0.0.1:" + port;
        const Finished up = run(
            {"/usr/bin/curl", "-sf", "--retry", "60", "--retry-delay", "1", "--retry-all-errors", base + "/health"});
        EXPECT_EQ(up.exit_code, 0) << "the server did not start";
        if (up.exit_code == 0) url = base;
    }
    std::vector<std::string> post(const std::string& path, const nlohmann::json& body) const {
        return {"/usr/bin/curl", "-s", "-m", "120", url + path, "-d", body.dump()};
    }
    nlohmann::json ask(const nlohmann::json& body) const {
        const Finished done = run(post("/completion", body));
        const auto answer = nlohmann::json::parse(done.out, nullptr, false);
        EXPECT_TRUE(answer.is_object()) << done.out << done.err;
        return answer.is_object() ? answer : nlohmann::json::object();
    }
    /// Ends it as a user does; what it printed.
    Finished stop(int number = SIGTERM) {
        process->signal(number);
        return process->wait();
    }

    std::unique_ptr<Process> process;
    std::string url;
};

}  // namespace linkcpp::test
