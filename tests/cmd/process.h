#pragma once
// Runs a program as a user does, and tells what it printed and how it ended.

#include <array>
#include <csignal>
#include <cstdio>
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

/// A running child whose standard output and error are pipes.
class Process {
  public:
    explicit Process(std::vector<std::string> arguments) {
        int out[2], err[2];
        if (pipe(out) != 0 || pipe(err) != 0) return;
        pid_ = fork();
        if (pid_ == 0) {
            dup2(out[1], STDOUT_FILENO);
            dup2(err[1], STDERR_FILENO);
            for (int fd : {out[0], out[1], err[0], err[1]})
                close(fd);
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
        if (pid_ > 0) wait();
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    void signal(int number) { kill(pid_, number); }

    Finished wait() {
        out_reader_.join();
        err_reader_.join();
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = -1;
        finished_.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return finished_;
    }

  private:
    static void read_all(int fd, std::string& text) {
        std::array<char, 4096> buffer;
        for (ssize_t n; (n = read(fd, buffer.data(), buffer.size())) > 0;)
            text.append(buffer.data(), static_cast<size_t>(n));
        close(fd);
    }

    pid_t pid_ = -1;
    Finished finished_;
    std::thread out_reader_, err_reader_;
};

inline Finished run(std::vector<std::string> arguments) { return Process(std::move(arguments)).wait(); }

}  // namespace linkcpp::test
