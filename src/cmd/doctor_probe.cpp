// Connects to workers as a backbone does, and listens to their WELCOME.

#include "cmd/doctor.h"

#include "net/tcp.h"
#include "wire/session.h"

#include <condition_variable>
#include <mutex>

namespace linkcpp::cmd {

namespace {

constexpr Duration patience = std::chrono::seconds(5);

/// One worker being asked. Lives on the loop.
class Asking final : public wire::SessionHandler {
  public:
    Asking(net::Network& network, Probe& probe, std::function<void()> done)
        : network_(network), probe_(probe), done_(std::move(done)), session_(wire::Side::backbone, 1 << 20) {}

    void start(const net::Address& address, const std::string& numeric_class) {
        timer_ = network_.loop().after(patience, [this] { finish({Code::timeout, "it does not answer"}); });
        network_.connect(address, patience, [this, numeric_class](Result<std::unique_ptr<net::Link>> link) {
            if (finished_) return;
            if (!link.ok()) return finish(link.status());
            link_ = std::move(*link);
            link_->on_closed = [this](const Status& status) { finish(status); };
            link_->on_bytes = [this](ByteSpan bytes) {
                if (const Status status = session_.feed(bytes, *this); !status.ok())
                    finish(status.in("it speaks another protocol"));
            };
            wire::Hello hello;
            hello.credit = 1 << 20;
            hello.build = "linkcpp " LINKCPP_VERSION;
            hello.numeric_class = numeric_class;
            sent_ = network_.loop().now();
            link_->send(session_.hello_for(hello));
        });
    }

  private:
    void on_welcome(const wire::Welcome& welcome) override {
        probe_.welcome = welcome;
        probe_.round_trip = network_.loop().now() - sent_;
        finish({});
    }
    void on_goaway(const wire::GoAway& goaway) override { finish({Code::unavailable, goaway.message}); }
    void finish(Status status) {
        if (std::exchange(finished_, true)) return;
        network_.loop().cancel(timer_);
        probe_.status = std::move(status);
        done_();
    }

    net::Network& network_;
    Probe& probe_;
    std::function<void()> done_;
    wire::Session session_;
    std::unique_ptr<net::Link> link_;
    net::Loop::TimerId timer_ = 0;
    Instant sent_{};
    bool finished_ = false;
};

}  // namespace

std::vector<Probe> probe_workers(const std::vector<net::Address>& workers, const std::string& numeric_class) {
    std::vector<Probe> probes(workers.size());
    net::TcpNetwork network;
    std::mutex mutex;
    std::condition_variable changed;
    size_t open = workers.size();
    std::vector<std::unique_ptr<Asking>> asking;
    network.loop().run([&] {
        for (size_t i = 0; i < workers.size(); ++i) {
            asking.push_back(std::make_unique<Asking>(network, probes[i], [&] {
                const std::lock_guard lock(mutex);
                --open;
                changed.notify_one();
            }));
            asking.back()->start(workers[i], numeric_class);
        }
    });
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return open == 0; });
    }
    network.loop().run([&] { asking.clear(); });
    network.stop();
    return probes;
}

}  // namespace linkcpp::cmd
