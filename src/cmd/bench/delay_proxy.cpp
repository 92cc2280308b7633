#include "cmd/bench/delay_proxy.h"

#include <deque>
#include <future>
#include <thread>

namespace linkcpp::cmd::bench {

namespace {

constexpr size_t most_unsent = 16u << 20;
constexpr Duration connect_timeout = std::chrono::seconds(5);

/// Bytes from one end to the other, in order, each held for the delay that was set when it arrived.
class Direction {
  public:
    Direction(net::Loop& loop, const std::atomic<int64_t>& delay, std::atomic<uint64_t>& counter)
        : loop_(loop), delay_(delay), counter_(counter) {}
    ~Direction() { loop_.cancel(timer_); }
    Direction(const Direction&) = delete;
    Direction& operator=(const Direction&) = delete;

    void join(net::Link& from, net::Link& to) {
        from_ = &from;
        to_ = &to;
        from.on_bytes = [this](ByteSpan bytes) { arrive(bytes); };
        to.on_drained = [this] { from_->set_reading(true); };
    }

  private:
    void arrive(ByteSpan bytes) {
        counter_ += bytes.size();
        const Duration delay(delay_);
        if (delay == Duration::zero() && held_.empty()) return pass({bytes.begin(), bytes.end()});
        held_.emplace_back(loop_.now() + delay, Bytes(bytes.begin(), bytes.end()));
        if (timer_ == 0) timer_ = loop_.after(delay, [this] { release(); });
    }
    void release() {
        timer_ = 0;
        while (!held_.empty() && held_.front().first <= loop_.now()) {
            pass(std::move(held_.front().second));
            held_.pop_front();
        }
        if (!held_.empty()) timer_ = loop_.after(held_.front().first - loop_.now(), [this] { release(); });
    }
    void pass(Bytes bytes) {
        to_->send(std::move(bytes));
        if (to_->unsent() > most_unsent) from_->set_reading(false);
    }

    net::Loop& loop_;
    const std::atomic<int64_t>& delay_;
    std::atomic<uint64_t>& counter_;
    net::Link *from_ = nullptr, *to_ = nullptr;
    std::deque<std::pair<Instant, Bytes>> held_;
    net::Loop::TimerId timer_ = 0;
};

}  // namespace

class DelayProxy::Connection {
  public:
    Connection(DelayProxy& proxy, std::unique_ptr<net::Link> client)
        : client_(std::move(client)), out_(proxy.network_.loop(), proxy.one_way_, proxy.bytes_out_),
          in_(proxy.network_.loop(), proxy.one_way_, proxy.bytes_in_) {
        client_->set_reading(false);
        client_->on_closed = [this](const Status&) { close(); };
        proxy.network_.connect(proxy.target_, connect_timeout,
                               [this, alive = alive_](Result<std::unique_ptr<net::Link>> link) {
                                   if (!*alive) return;
                                   if (!link.ok()) return close();
                                   target_ = std::move(*link);
                                   target_->on_closed = [this](const Status&) { close(); };
                                   out_.join(*client_, *target_);
                                   in_.join(*target_, *client_);
                                   client_->set_reading(true);
                               });
    }
    ~Connection() { *alive_ = false; }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

  private:
    void close() {
        if (client_) client_->close(true);
        if (target_) target_->close(true);
    }

    std::unique_ptr<net::Link> client_, target_;
    Direction out_, in_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

DelayProxy::DelayProxy(net::Address target) : target_(std::move(target)) {}

Result<std::unique_ptr<DelayProxy>> DelayProxy::start(const net::Address& target) {
    std::unique_ptr<DelayProxy> proxy(new DelayProxy(target));
    Status status;
    proxy->network_.loop().run([&] {
        auto listener =
            proxy->network_.listen({"127.0.0.1", 0}, [raw = proxy.get()](std::unique_ptr<net::Link> client) {
                raw->connections_.push_back(std::make_unique<Connection>(*raw, std::move(client)));
            });
        status = listener.status();
        if (!listener.ok()) return;
        proxy->listener_ = std::move(*listener);
        proxy->address_ = proxy->listener_->address();
    });
    if (!status.ok()) return status;
    return proxy;
}

Result<uint16_t> DelayProxy::free_port() {
    // The proxy's own listener shows one.
    auto proxy = start({"127.0.0.1", 1});
    if (!proxy.ok()) return proxy.status();
    return (*proxy)->address().port;
}

Status DelayProxy::wait_for(const net::Address& address, Duration limit) {
    const SteadyClock clock;
    const Instant end = clock.now() + limit;
    net::TcpNetwork network;
    while (clock.now() < end) {
        std::promise<bool> answered;
        network.loop().run([&] {
            network.connect(address, connect_timeout,
                            [&](const Result<std::unique_ptr<net::Link>>& link) { answered.set_value(link.ok()); });
        });
        if (answered.get_future().get()) return {};
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return {Code::timeout, "nobody listens on " + address.str()};
}

DelayProxy::~DelayProxy() {
    network_.loop().run([this] {
        connections_.clear();
        listener_.reset();
    });
    network_.stop();
}

}  // namespace linkcpp::cmd::bench
