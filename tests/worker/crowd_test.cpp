// The real worker and a crowd that means no good: thousands of connections that say nothing, that stop after the handshake,
// that send half a frame, that take no results. It lives, its memory is bounded, and who behaves is served.
#include "worker/process_fixture.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace linkcpp::worker {
namespace {

constexpr size_t mib = 1 << 20;

/// A plain socket, of which thousands are cheap. Blocking, but for reading.
class Stranger {
  public:
    Stranger(uint16_t port, uint32_t source = INADDR_LOOPBACK) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in from{}, to{};
        from.sin_family = to.sin_family = AF_INET;
        from.sin_addr.s_addr = htonl(source);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(port);
        const int one = 1;
        setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
        connected_ = fd_ >= 0 && bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof(from)) == 0 &&
                     connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0;
    }
    Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
    ~Stranger() {
        if (fd_ >= 0) close(fd_);
    }
    bool connected() const { return connected_; }
    /// Sends as much as the other end takes within a moment.
    void send(ByteSpan bytes) const {
        timeval moment{0, 200'000};
        setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof(moment));
        while (!bytes.empty()) {
            const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (n <= 0) return;
            bytes = bytes.subspan(static_cast<size_t>(n));
        }
    }
    void say_hello(uint64_t credit) const {
        send(wire::encode(wire::Hello{.max_payload = 1 << 26, .credit = credit, .build = "stranger"}));
    }

  private:
    int fd_;
    bool connected_ = false;
};

/// A line of /proc/PID/status in bytes.
size_t memory(const Process& process, const std::string& what) {
    std::ifstream status("/proc/" + std::to_string(process.pid()) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with(what + ":")) return std::stoul(line.substr(what.size() + 1)) * 1024;
    }
    return 0;
}

bool allow_open_files(rlim_t n) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_max = std::max(limit.rlim_max, n);
    limit.rlim_cur = std::max(limit.rlim_cur, n);
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

class WorkerCrowd : public WorkerProcess {
  protected:
    void start(std::vector<std::string> options = {}) {
        path = cut("whole.gguf", {});
        auto file = moe::SliceFile::open(path);
        ASSERT_TRUE(file.ok());
        info = file->info();
        options.insert(options.end(), {"--model", path, "--threads", "1"});
        process = std::make_unique<Process>(command(options));
        port = port_of(*process);
    }
    Bytes program() const {
        return wire::encode(header(info, 0, 0), wire::ProgramFrame{1, 0, 4, encode_program(gated_program())});
    }
    /// Asks until the answer is not "busy".
    bool is_served(Backbone& backbone) {
        for (int attempt = 0; attempt < 300; ++attempt) {
            const uint64_t request = ++last_request;
            backbone.send(wire::encode(header(info, request, 1), prompt(4, 16, 1)));
            const TestBackbone::Answer answer = backbone.answer(request);
            if (answer.complete) return answer.rows.size() == size_t{4} * 4 * 256;
            if (!answer.refused || answer.refused->code != wire::RefuseCode::busy) return false;
            std::this_thread::sleep_for(100ms);
        }
        return false;
    }
    /// A new backbone; while the places are taken it tries again.
    std::unique_ptr<Backbone> newcomer() {
        for (int attempt = 0; attempt < 300; ++attempt) {
            auto backbone = std::make_unique<Backbone>(port, [](const TestBackbone& end) {
                return end.welcome.has_value() || end.closed || end.goaway.has_value();
            });
            bool welcome = false;
            backbone->network.loop().run([&] { welcome = backbone->end.welcome && !backbone->end.closed; });
            if (welcome) {
                backbone->send(program());
                return backbone;
            }
            std::this_thread::sleep_for(100ms);
        }
        return nullptr;
    }

    std::string path;
    moe::SliceInfo info;
    std::unique_ptr<Process> process;
    uint16_t port = 0;
    uint64_t last_request = 0;
};

TEST_F(WorkerCrowd, memory_is_bounded_in_total_whoever_hoards_it) {
    start({"--max-peer-memory", "48MiB"});
    auto good = newcomer();
    ASSERT_TRUE(good);
    ASSERT_TRUE(is_served(*good));
    const size_t before = memory(*process, "VmHWM");
    ASSERT_GT(before, 0u);

    std::vector<Stranger> crowd;
    // Results of 4 MB that nobody takes, 20 asked for by each; together that would be more than 2 GB.
    const Bytes large = wire::encode(header(info, 1, 1), prompt(1000, 16, 2));
    for (int i = 0; i < 30; ++i) {
        const Stranger& greedy = crowd.emplace_back(port);
        greedy.say_hello(0);
        greedy.send(program());
        for (int k = 0; k < 20; ++k)
            greedy.send(large);
    }
    // And all but the last byte of the largest frame: 30 times 4 MB.
    wire::FrameHeader compute = header(info, 1, 1);
    compute.type = wire::FrameType::compute;
    Bytes half(wire::header_bytes + 4 * mib);
    seal_frame(compute, half);
    half.pop_back();
    for (int i = 0; i < 30; ++i) {
        const Stranger& slow = crowd.emplace_back(port);
        slow.say_hello(0);
        slow.send(half);
    }
    EXPECT_TRUE(is_served(*good)) << "while the crowd is there";
    // The bound, a frame and what is being computed, and what the allocator keeps.
    EXPECT_LT(memory(*process, "VmHWM") - before, 96 * mib);
    crowd.clear();
    EXPECT_TRUE(is_served(*good)) << "when it is gone";
    auto late = newcomer();
    ASSERT_TRUE(late);
    EXPECT_TRUE(is_served(*late));
    EXPECT_LT(memory(*process, "VmHWM") - before, 96 * mib);
    process->signal(SIGTERM);
    EXPECT_EQ(process->wait().exit_code, 0);
}

TEST_F(WorkerCrowd, a_ping_is_answered_while_a_long_request_is_computed) {
    start();
    auto good = newcomer();
    ASSERT_TRUE(good);
    good->send(wire::encode(header(info, 1, 1), prompt(1100, 16, 2)));
    good->send(wire::encode(header(info, 2, 1), prompt(1100, 16, 3)));
    good->send(wire::encode(wire::Ping{1}));
    ASSERT_TRUE(good->wait([&] { return !good->end.pongs.empty(); }));
    bool computing = false;
    good->network.loop().run([&] {
        computing = !good->end.answers[2].complete;
        EXPECT_GT(good->end.pongs[0].rows_queued, 0u);
    });
    EXPECT_TRUE(computing) << "the answer to the ping came after the results";
    EXPECT_TRUE(good->answer(2).complete);
}

TEST_F(WorkerCrowd, ten_thousand_connections) {
    start();  // before this process may open more files than usual, so that the worker may not
    if (!allow_open_files(12'000)) GTEST_SKIP() << "this test may not open 12000 files";
    auto good = newcomer();
    ASSERT_TRUE(good);
    ASSERT_TRUE(is_served(*good));
    const size_t before = memory(*process, "VmHWM");

    std::vector<Stranger> crowd;
    for (uint32_t i = 0; i < 10'000; ++i) {
        // 127.0.0.2 to 127.0.0.101
        const Stranger& stranger = crowd.emplace_back(port, INADDR_LOOPBACK + 1 + i % 100);
        ASSERT_TRUE(stranger.connected()) << "connection " << i << ": " << std::strerror(errno);
        if (i % 3 == 0) stranger.say_hello(1 << 20);
        if (i % 3 == 1) stranger.send(Bytes{'L', 'C'});
        if (i % 500 == 0) {
            ASSERT_TRUE(is_served(*good)) << "after " << i << " connections";
        }
    }
    ASSERT_TRUE(is_served(*good));
    EXPECT_LT(memory(*process, "VmHWM") - before, 64 * mib);
    crowd.clear();
    ASSERT_TRUE(is_served(*good));
    auto late = newcomer();
    ASSERT_TRUE(late);
    EXPECT_TRUE(is_served(*late));
    process->signal(SIGTERM);
    const test::Finished finished = process->wait();
    EXPECT_EQ(finished.exit_code, 0);
    EXPECT_LT(std::count(finished.err.begin(), finished.err.end(), '\n'), 1000) << "a line for every stranger";
}

}  // namespace
}  // namespace linkcpp::worker
