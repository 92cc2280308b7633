#include "cmd/child.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace linkcpp::cmd {

namespace {

Status system_error(const std::string& what) { return {Code::io, what + ": " + std::strerror(errno)}; }

/// Between fork and exec: only what is allowed there.
[[noreturn]] void become(char* const* arguments, int input, int output, int file, pid_t parent) {
    constexpr int failed = 127;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(failed);  // it is gone already
    // dup2 clears close-on-exec, and does nothing where both are the same; so out of the way first.
    const int high = fcntl(file, F_DUPFD, 10);
    if (high < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 || dup2(high, child_file) < 0) {
        _exit(failed);
    }
    close(high);
    execv("/proc/self/exe", arguments);
    _exit(failed);
}

/// Reads until the other end is closed; ends the child when `stop` is set. A signal interrupts the read.
std::string read_output(int descriptor, pid_t child, const std::atomic<bool>& stop) {
    std::string output;
    std::array<char, 65536> buffer{};
    for (;;) {
        if (stop) kill(child, SIGTERM);
        const ssize_t size = read(descriptor, buffer.data(), buffer.size());
        if (size == 0 || (size < 0 && errno != EINTR)) return output;
        if (size > 0) output.append(buffer.data(), static_cast<size_t>(size));
    }
}

Status wait_for(pid_t child) {
    int state = 0;
    while (waitpid(child, &state, 0) < 0) {
        if (errno != EINTR) return system_error("a process of this program is lost");
    }
    if (WIFEXITED(state) && WEXITSTATUS(state) == 0) return {};
    if (WIFSIGNALED(state)) {
        return {Code::unavailable, fmt::format("ended by signal {} ({})", WTERMSIG(state), strsignal(WTERMSIG(state)))};
    }
    return {Code::unavailable, "failed; what went wrong stands above"};
}

}  // namespace

Result<UnnamedFile> UnnamedFile::create() {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/linkcpp-XXXXXX";
    const int descriptor = mkostemp(path.data(), O_CLOEXEC);
    if (descriptor < 0) return system_error(path + " cannot be made");
    unlink(path.c_str());
    return UnnamedFile(descriptor);
}

UnnamedFile::UnnamedFile(UnnamedFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

UnnamedFile::~UnnamedFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

Status UnnamedFile::write(const std::string& text) {
    for (size_t done = 0; done < text.size();) {
        const ssize_t size = ::write(descriptor_, text.data() + done, text.size() - done);
        if (size < 0 && errno != EINTR) return system_error("a temporary file cannot be written");
        if (size > 0) done += static_cast<size_t>(size);
    }
    return lseek(descriptor_, 0, SEEK_SET) == 0 ? Status() : system_error("a temporary file cannot be read");
}

Result<std::string> run_self(const std::vector<std::string>& arguments, const std::string& input, int file,
                             const std::atomic<bool>& stop) {
    auto input_file = UnnamedFile::create();
    if (!input_file.ok()) return input_file.status();
    LINKCPP_TRY(input_file->write(input));
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), "linkcpp");
    std::vector<char*> pointers;
    for (std::string& word : words)
        pointers.push_back(word.data());
    pointers.push_back(nullptr);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe");

    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child == 0) become(pointers.data(), input_file->descriptor(), ends[1], file, parent);
    close(ends[1]);
    if (child < 0) {
        close(ends[0]);
        return system_error("no process");
    }
    std::string output = read_output(ends[0], child, stop);
    close(ends[0]);
    LINKCPP_TRY(wait_for(child));
    return output;
}

}  // namespace linkcpp::cmd
