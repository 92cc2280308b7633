// Ten thousand nodes and one live hub: registers them, has each take a lease and hold it, then has every one of them tell its
// coverage every five seconds while demand is asked for, and prints how long answers took. For docs/BENCHMARKS.md; not a test.
//
//     swarm-load http://127.0.0.1:19000 [nodes] [seconds]
#include "base/signing_key.h"
#include "client/hub_api.h"

#include <algorithm>
#include <fmt/format.h>
#include <mutex>
#include <thread>

namespace {

using namespace linkcpp;
using namespace std::chrono_literals;

constexpr size_t n_threads = 16;

struct Node {
    SigningKey key = SigningKey::generate();
    client::Coverage coverage;
    std::unique_ptr<client::HubApi> api;
};

class Times {
  public:
    void add(Duration time) {
        const std::lock_guard lock(mutex_);
        all_.push_back(time);
    }
    void print(const char* what, double seconds) {
        std::sort(all_.begin(), all_.end());
        const auto at = [&](double share) {
            return milliseconds(all_[static_cast<size_t>(share * static_cast<double>(all_.size() - 1))]);
        };
        fmt::print("{}: {} ({:.0f}/s), p50 {:.2f} ms, p99 {:.2f} ms, most {:.1f} ms\n", what, all_.size(),
                   static_cast<double>(all_.size()) / seconds, at(0.5), at(0.99), at(1));
    }

  private:
    std::mutex mutex_;
    std::vector<Duration> all_;
};

void end(const Status& status) {
    fmt::print(stderr, "{}\n", status.message());
    std::exit(1);
}

/// Calls `work(i)` for every node, from several threads.
template <typename Work>
void for_all(size_t n, Work&& work) {
    std::vector<std::thread> threads;
    for (size_t t = 0; t < n_threads; ++t) {
        threads.emplace_back([&, t] {
            for (size_t i = t; i < n; i += n_threads)
                work(i);
        });
    }
    for (std::thread& thread : threads)
        thread.join();
}

/// The time `work` takes.
template <typename Work>
Duration timed(Work&& work) {
    const SteadyClock clock;
    const Instant begin = clock.now();
    work();
    return clock.now() - begin;
}

}  // namespace

int main(int argc, char** argv) {
    const auto url = client::HubUrl::parse(argc > 1 ? argv[1] : "127.0.0.1");
    const size_t n_nodes = argc > 2 ? std::stoul(argv[2]) : 10'000;
    const double seconds = argc > 3 ? std::stod(argv[3]) : 30;
    if (!url.ok()) end(url.status());

    std::vector<Node> nodes(n_nodes);
    Times joining, telling, asking;
    const Duration all_joined = timed([&] {
        for_all(n_nodes, [&](size_t i) {
            Node& node = nodes[i];
            node.api = std::make_unique<client::HubApi>(*url, client::HttpSettings{}, node.key, std::nullopt);
            joining.add(timed([&] {
                const auto registered = node.api->register_node({});
                if (!registered.ok()) end(registered.status());
                const auto lease = node.api->volunteer({.max_bytes = 0, .max_experts = 4, .instead_of = {}});
                if (!lease.ok()) end(lease.status());
                node.coverage.holds = {lease->what};
                node.coverage.address = "10.0.0.1:50071";
                if (const auto told = node.api->tell_coverage(node.coverage); !told.ok()) end(told.status());
            }));
        });
    });
    joining.print("join (register, lease, first heartbeat)", milliseconds(all_joined) / 1000);

    const SteadyClock clock;
    const Instant begin = clock.now(),
                  stop = begin + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
    std::thread demand([&] {
        const SigningKey key = SigningKey::generate();
        client::HubApi api(*url, {}, key, std::nullopt);
        while (clock.now() < stop) {
            asking.add(timed([&] {
                if (const auto all = api.demand(); !all.ok()) end(all.status());
            }));
            std::this_thread::sleep_for(100ms);
        }
    });
    // A node belongs to one thread; its turn comes every five seconds.
    for_all(n_threads, [&](size_t thread) {
        for (Duration round{0}; begin + round < stop; round += 5s) {
            for (size_t i = thread; i < n_nodes; i += n_threads) {
                const Instant due =
                    begin + round + Duration(5s) * static_cast<int64_t>(i) / static_cast<int64_t>(n_nodes);
                std::this_thread::sleep_for(due - clock.now());
                Node& node = nodes[i];
                telling.add(timed([&] {
                    if (const auto told = node.api->tell_coverage(node.coverage); !told.ok()) end(told.status());
                }));
            }
        }
    });
    demand.join();
    telling.print("heartbeat", seconds);
    asking.print("demand", seconds);
}
