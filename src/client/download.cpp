#include "client/download.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <random>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace linkcpp::client {

namespace {

namespace fs = std::filesystem;

Status file_error(const std::string& path) {
    return {errno == ENOSPC || errno == EDQUOT ? Code::exhausted : Code::io, path + ": " + std::strerror(errno)};
}

class PartFile {
  public:
    explicit PartFile(std::string path)
        : path_(std::move(path)), fd_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
    ~PartFile() {
        if (fd_ >= 0) close(fd_);
    }
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    bool ok() const { return fd_ >= 0; }
    Status error() const { return file_error(path_); }
    uint64_t size() const {
        struct stat stat {};
        return fstat(fd_, &stat) == 0 ? static_cast<uint64_t>(stat.st_size) : 0;
    }
    Status append(ByteSpan bytes) {
        while (!bytes.empty()) {
            const ssize_t n = write(fd_, bytes.data(), bytes.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return error();
            bytes = bytes.subspan(static_cast<size_t>(n));
        }
        return {};
    }
    Status cut(uint64_t size) {
        if (ftruncate(fd_, static_cast<off_t>(size)) != 0 || lseek(fd_, static_cast<off_t>(size), SEEK_SET) < 0)
            return error();
        return {};
    }
    Status sync() const { return fsync(fd_) == 0 ? Status() : error(); }

  private:
    const std::string path_;
    int fd_;
};

std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

/// One request: from where the part ends, if it is of the version that the hub has now, else from the beginning.
Status attempt(HttpClient& http, const std::string& target, const std::string& path, PartFile& part,
               std::atomic<uint64_t>& arrived) {
    const std::string etag = read_text(path + ".etag");
    LINKCPP_TRY(part.cut(etag.empty() ? 0 : part.size()));
    arrived = part.size();
    HttpRequest request{"GET", target, {}, "", {}};
    if (arrived > 0) {
        request.headers.emplace_back("Range", fmt::format("bytes={}-", arrived.load()));
        request.headers.emplace_back("If-Range", etag);
    }
    bool begun = false;
    const auto answer = http.stream(request, [&](const HttpAnswer& head, ByteSpan piece) -> Status {
        if (!std::exchange(begun, true) && head.status != 206) {
            LINKCPP_TRY(part.cut(0));
            arrived = 0;
            std::ofstream(path + ".etag", std::ios::binary) << head.header("etag");
        }
        LINKCPP_TRY(part.append(piece));
        arrived += piece.size();
        return {};
    });
    if (!answer.ok()) return answer.status();
    if (answer->ok()) return {};
    // 416: the part is as long as the file, or of another file; its digests will tell.
    if (answer->status == 416 && arrived > 0) {
        LINKCPP_TRY(part.cut(0));
        return {Code::unavailable, "the hub has another version"};
    }
    return {answer->status >= 500 || answer->status == 429 ? Code::unavailable : Code::not_found,
            fmt::format("{}{}: answer {}", http.url().str(), target, answer->status)};
}

void wait(Duration duration, const std::atomic<bool>& cancelled) {
    const auto until = std::chrono::steady_clock::now() + duration;
    while (!cancelled && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

}  // namespace

Status download(const HubUrl& url, const std::string& target, const std::string& path, const DownloadSettings& settings,
                std::atomic<uint64_t>& arrived, const std::atomic<bool>& cancelled) {
    PartFile part(path + ".part");
    if (!part.ok()) return part.error();
    std::minstd_rand random(std::random_device{}());
    HttpSettings http_settings = settings.http;
    http_settings.stop = &cancelled;
    HttpClient http(url, http_settings);
    int n_failures = 0;
    uint64_t best = 0;
    while (true) {
        const Status status = attempt(http, target, path, part, arrived);
        if (status.ok()) break;
        if (cancelled || (status.code() != Code::unavailable && status.code() != Code::timeout)) return status;
        n_failures = arrived > best ? 0 : n_failures + 1;
        best = std::max<uint64_t>(best, arrived);
        if (n_failures >= settings.max_failures) return status;
        const Duration backoff =
            std::min(settings.longest_backoff, settings.first_backoff * (int64_t{1} << std::min(n_failures, 10)));
        wait(backoff * (500 + static_cast<int64_t>(random() % 1001)) / 1000, cancelled);
    }
    LINKCPP_TRY(part.sync());
    std::error_code error;
    fs::rename(path + ".part", path, error);
    if (error) return {Code::io, path + ": " + error.message()};
    fs::remove(path + ".etag", error);
    return {};
}

}  // namespace linkcpp::client
