#pragma once
// Runs a program as a user does: waits for a line it prints, ends it, and tells what it printed and how it ended.

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace linkcpp::test {

struct Finished {
    int exit_code = -1;  // 128 + signal when one ended it
    std::string out, err;
};

using Environment = std::map<std::string, std::string>;

/// A running child whose standard output and error are pipes. One that still runs at the end of its life is killed.
class Process {
  public:
    explicit Process(std::vector<std::string> arguments, const Environment& environment = {}) {
        int out[2], err[2];
        if (pipe(out) != 0 || pipe(err) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            setpgid(0, 0);
            dup2(out[1], STDOUT_FILENO);
            dup2(err[1], STDERR_FILENO);
            for (int fd : {out[0], out[1], err[0], err[1]})
                close(fd);
            for (const auto& [name, value] : environment)
                setenv(name.c_str(), value.c_str(), 1);
            std::vector<char*> argv;
            for (std::string& argument : arguments)
                argv.push_back(argument.data());
            argv.push_back(nullptr);
            execv(argv[0], argv.data());
            _exit(127);
        }
        close(out[1]);
        close(err[1]);
        out_reader_ = std::thread([this, fd = out[0]] { read_all(fd, finished_.out); });
        err_reader_ = std::thread([this, fd = err[0]] { read_all(fd, finished_.err); });
    }
    ~Process() {
        if (pid_ <= 0) return;
        signal(SIGKILL);
        wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    pid_t pid() const { return pid_; }
    void signal(int number) const { kill(pid_, number); }

    Finished wait() {
        out_reader_.join();
        err_reader_.join();
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        finished_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return finished_;
    }

    /// The rest of the first line of standard output (or error) that begins with `prefix`; nullopt when the output ends
    /// without one, or none came within `limit`.
    std::optional<std::string> wait_for_line(const std::string& prefix,
                                             std::chrono::seconds limit = std::chrono::seconds(60)) {
        const auto end = std::chrono::steady_clock::now() + limit;
        std::unique_lock lock(mutex_);
        for (;;) {
            for (const std::string* text : {&finished_.out, &finished_.err}) {
                const std::string all = "\n" + *text;
                const size_t line = all.find("\n" + prefix);
                const size_t line_end = line == std::string::npos ? line : all.find('\n', line + 1);
                if (line_end != std::string::npos)
                    return all.substr(line + 1 + prefix.size(), line_end - line - 1 - prefix.size());
            }
            if (n_closed_ == 2 || changed_.wait_until(lock, end) == std::cv_status::timeout) return std::nullopt;
        }
    }

    /// Waits until standard output has at least `n_bytes`. False: it ended before.
    bool wait_for_output(size_t n_bytes) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return finished_.out.size() >= n_bytes || n_closed_ == 2; });
        return finished_.out.size() >= n_bytes;
    }

  private:
    void read_all(int fd, std::string& text) {
        std::array<char, 4096> buffer;
        for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;) {
            const std::lock_guard lock(mutex_);
            text.append(buffer.data(), static_cast<size_t>(n));
            changed_.notify_all();
        }
        close(fd);
        const std::lock_guard lock(mutex_);
        n_closed_ += 1;
        changed_.notify_all();
    }

    pid_t pid_ = -1;
    std::mutex mutex_;
    std::condition_variable changed_;
    int n_closed_ = 0;
    Finished finished_;
    std::thread out_reader_, err_reader_;
};

inline Finished run(std::vector<std::string> arguments, const Environment& environment = {}) {
    return Process(std::move(arguments), environment).wait();
}

/// A program of the build folder.
inline std::string program(const std::string& name) { return std::string(LINKCPP_BIN_DIR) + "/" + name; }

}  // namespace linkcpp::test
