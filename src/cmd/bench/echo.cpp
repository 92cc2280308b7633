#include "cmd/bench/echo.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

namespace linkcpp::cmd::bench {

namespace {

bool write_all(int descriptor, const std::vector<uint8_t>& bytes) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t size = send(descriptor, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (size < 0 && errno != EINTR) return false;
        if (size > 0) done += static_cast<size_t>(size);
    }
    return true;
}

bool read_all(int descriptor, std::vector<uint8_t>& bytes) {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t size = recv(descriptor, bytes.data() + done, bytes.size() - done, 0);
        if (size == 0 || (size < 0 && errno != EINTR)) return false;
        if (size > 0) done += static_cast<size_t>(size);
    }
    return true;
}

/// Both ends of a TCP connection over loopback, or {-1, -1}.
std::pair<int, int> connected_pair() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    int server = -1;
    if (bind(listener, any, size) == 0 && listen(listener, 1) == 0 && getsockname(listener, any, &size) == 0 &&
        connect(client, any, size) == 0)
        server = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const int on = 1;
    for (const int end : {client, server})
        setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (server >= 0) return {client, server};
    close(client);
    return {-1, -1};
}

}  // namespace

Result<std::unique_ptr<Echo>> Echo::start(uint64_t bytes_out, uint64_t bytes_in) {
    const auto [client, server] = connected_pair();
    if (client < 0) return {Code::io, std::string("no connection over loopback: ") + std::strerror(errno)};
    return std::unique_ptr<Echo>(new Echo(client, server, bytes_out, bytes_in));
}

Echo::Echo(int client, int server, uint64_t bytes_out, uint64_t bytes_in)
    : client_(client), server_(server), out_(bytes_out), in_(bytes_in), thread_([this] {
          std::vector<uint8_t> request(out_.size());
          const std::vector<uint8_t> answer(in_.size());
          while (read_all(server_, request) && write_all(server_, answer)) {
          }
      }) {}

Echo::~Echo() {
    shutdown(client_, SHUT_RDWR);
    thread_.join();
    close(client_);
    close(server_);
}

Result<Duration> Echo::exchange() {
    const SteadyClock clock;
    const Instant begin = clock.now();
    if (!write_all(client_, out_) || !read_all(client_, in_)) return {Code::io, "the echo's connection broke"};
    return clock.now() - begin;
}

}  // namespace linkcpp::cmd::bench
