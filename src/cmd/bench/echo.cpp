#include "cmd/bench/echo.h"

#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

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

sockaddr_in loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
}

}  // namespace

Result<std::unique_ptr<Echo>> Echo::start(uint64_t bytes_out, uint64_t bytes_in, Duration round_trip) {
    const auto failed = [] { return Status(Code::io, std::string("no echo over loopback: ") + std::strerror(errno)); };
    const Descriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = loopback(0);
    socklen_t size = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener.get(), any, size) != 0 || listen(listener.get(), 1) != 0 ||
        getsockname(listener.get(), any, &size) != 0)
        return failed();
    std::unique_ptr<DelayProxy> relay;
    if (round_trip > Duration::zero()) {
        auto started = DelayProxy::start({"127.0.0.1", ntohs(address.sin_port)});
        if (!started.ok()) return started.status();
        relay = std::move(*started);
        relay->set_round_trip(round_trip);
        address = loopback(relay->address().port);
    }
    Descriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(client.get(), any, size) != 0) return failed();
    Descriptor server(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!server.ok()) return failed();
    const int on = 1;
    for (const int end : {client.get(), server.get()})
        setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return std::unique_ptr<Echo>(new Echo(std::move(relay), std::move(client), std::move(server), bytes_out, bytes_in));
}

Echo::Echo(std::unique_ptr<DelayProxy> relay, Descriptor client, Descriptor server, uint64_t bytes_out,
           uint64_t bytes_in)
    : relay_(std::move(relay)), client_(std::move(client)), server_(std::move(server)), out_(bytes_out), in_(bytes_in),
      thread_([this] {
          std::vector<uint8_t> request(out_.size());
          const std::vector<uint8_t> answer(in_.size());
          while (read_all(server_.get(), request) && write_all(server_.get(), answer)) {
          }
      }) {}

Echo::~Echo() {
    shutdown(client_.get(), SHUT_RDWR);
    shutdown(server_.get(), SHUT_RDWR);
    thread_.join();
}

Result<Duration> Echo::exchange() {
    const SteadyClock clock;
    const Instant begin = clock.now();
    if (!write_all(client_.get(), out_) || !read_all(client_.get(), in_))
        return {Code::io, "the echo's connection broke"};
    return clock.now() - begin;
}

}  // namespace linkcpp::cmd::bench
