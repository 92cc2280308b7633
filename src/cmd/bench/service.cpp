#include "cmd/bench/service.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace linkcpp::cmd::bench {

namespace {

Status system_error(const std::string& what) { return {Code::io, what + ": " + std::strerror(errno)}; }

/// Between fork and exec: only what is allowed there.
[[noreturn]] void become(char* const* arguments, int in, int out, bool quiet, pid_t parent) {
    constexpr int failed = 127;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(failed);
    if (dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) _exit(failed);
    if (quiet) {
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    }
    execv(arguments[0], arguments);
    _exit(failed);
}

}  // namespace

Result<Service> Service::start(const std::vector<std::string>& command, bool quiet) {
    std::vector<std::string> words = command;
    std::vector<char*> pointers;
    for (std::string& word : words)
        pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::array<int, 2> in{}, out{};
    if (pipe2(in.data(), O_CLOEXEC) != 0) return system_error("no pipe");
    if (pipe2(out.data(), O_CLOEXEC) != 0) {
        close(in[0]);
        close(in[1]);
        return system_error("no pipe");
    }
    const pid_t parent = getpid();
    const pid_t process = fork();
    if (process == 0) become(pointers.data(), in[0], out[1], quiet, parent);
    close(in[0]);
    close(out[1]);
    Service service(process, in[1], out[0]);
    if (process < 0) return system_error("no process");
    return service;
}

Service::Service(Service&& other) noexcept
    : process_(std::exchange(other.process_, -1)), in_(std::exchange(other.in_, -1)),
      out_(std::exchange(other.out_, -1)), heard_(std::move(other.heard_)) {}

Service& Service::operator=(Service&& other) noexcept {
    if (this == &other) return *this;
    end();
    process_ = std::exchange(other.process_, -1);
    in_ = std::exchange(other.in_, -1);
    out_ = std::exchange(other.out_, -1);
    heard_ = std::move(other.heard_);
    return *this;
}

Service::~Service() { end(); }

void Service::end() {
    if (in_ >= 0) close(std::exchange(in_, -1));
    if (out_ >= 0) close(std::exchange(out_, -1));
    if (process_ <= 0) return;
    kill(process_, SIGTERM);
    constexpr int patience_ms = 5000, step_ms = 10;
    for (int waited = 0; waitpid(process_, nullptr, WNOHANG) == 0; waited += step_ms) {
        if (waited >= patience_ms) kill(process_, SIGKILL);
        poll(nullptr, 0, step_ms);
    }
    process_ = -1;
}

Status Service::say(const std::string& line) {
    const std::string text = line + "\n";
    for (size_t done = 0; done < text.size();) {
        const ssize_t size = write(in_, text.data() + done, text.size() - done);
        if (size < 0 && errno != EINTR) return {Code::unavailable, "a process of the benchmark ended"};
        if (size > 0) done += static_cast<size_t>(size);
    }
    return {};
}

Result<std::string> Service::hear(const std::atomic<bool>& stop) {
    for (;;) {
        if (const size_t end = heard_.find('\n'); end != std::string::npos) {
            std::string line = heard_.substr(0, end);
            heard_.erase(0, end + 1);
            return line;
        }
        std::array<char, 4096> buffer{};
        if (stop) return {Code::unavailable, "interrupted"};
        pollfd ready{out_, POLLIN, 0};
        if (poll(&ready, 1, 100) <= 0) continue;
        const ssize_t size = read(out_, buffer.data(), buffer.size());
        if (size > 0) heard_.append(buffer.data(), static_cast<size_t>(size));
        if (size == 0 || (size < 0 && errno != EINTR))
            return {Code::unavailable, "a process of the benchmark ended; run it with -v to see what it says"};
    }
}

Result<std::string> Service::hear(const std::string& prefix, const std::atomic<bool>& stop) {
    for (;;) {
        auto line = hear(stop);
        if (!line.ok()) return line.status();
        if (line->starts_with(prefix)) return line->substr(prefix.size());
    }
}

}  // namespace linkcpp::cmd::bench
