#pragma once
// An HTTP server that answers what a test says, byte by byte.

#include "client/url.h"
#include "net/tcp.h"

#include <gtest/gtest.h>
#include <utility>
#include <vector>

namespace linkcpp::test {

/// Answers the n-th request with the n-th text, whatever was asked. A text may be followed by the end of the connection.
class CannedServer {
  public:
    struct Answer {
        std::string text;
        bool close = false;
    };
    explicit CannedServer(std::vector<Answer> answers) : answers_(std::move(answers)) {
        network_.loop().run([this] {
            auto listener =
                network_.listen({"127.0.0.1", 0}, [this](std::unique_ptr<net::Link> link) { accept(std::move(link)); });
            ASSERT_TRUE(listener.ok());
            listener_ = std::move(*listener);
            url = {false, "127.0.0.1", listener_->address().port};
        });
    }
    ~CannedServer() {
        network_.loop().run([this] {
            links_.clear();
            listener_.reset();
        });
        network_.stop();
    }
    std::vector<std::string> requests() {
        std::vector<std::string> copy;
        network_.loop().run([&] { copy = requests_; });
        return copy;
    }
    size_t n_connections() {
        size_t n = 0;
        network_.loop().run([&] { n = links_.size(); });
        return n;
    }
    void stop_listening() {
        network_.loop().run([this] { listener_.reset(); });
    }

    client::HubUrl url;

  private:
    void accept(std::unique_ptr<net::Link> link) {
        net::Link* raw = link.get();
        links_.push_back(std::move(link));
        raw->on_bytes = [this, raw, text = std::string()](ByteSpan bytes) mutable {
            text.append(bytes.begin(), bytes.end());
            if (text.find("\r\n\r\n") == std::string::npos) return;
            requests_.push_back(std::exchange(text, ""));
            if (requests_.size() > answers_.size()) return;
            const Answer& answer = answers_[requests_.size() - 1];
            raw->send(Bytes(answer.text.begin(), answer.text.end()));
            if (answer.close) raw->close(true);
        };
    }

    std::vector<Answer> answers_;
    std::vector<std::string> requests_;
    std::vector<std::unique_ptr<net::Link>> links_;
    std::unique_ptr<net::Listener> listener_;
    net::TcpNetwork network_;
};

inline std::string with_length(const std::string& status, const std::string& body, const std::string& more = "") {
    return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more + "\r\n" + body;
}

}  // namespace linkcpp::test
