// TCP on loopback: what net/loop.h promises, with real sockets and the real thread.
#include "net/tcp.h"

#include <arpa/inet.h>
#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace linkcpp::net {
namespace {

using namespace std::chrono_literals;

bool wait_for(const std::function<bool()>& done, Duration limit = 20s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

Bytes pattern(size_t size, uint32_t seed = 1) {
    Bytes bytes(size);
    for (uint8_t& byte : bytes) {
        seed = seed * 1664525 + 1013904223;
        byte = static_cast<uint8_t>(seed >> 24);
    }
    return bytes;
}

class Tcp : public testing::Test {
  protected:
    void TearDown() override {
        network.stop();
        links.clear();
        listener.reset();
    }
    void on_loop(const std::function<void()>& task) { network.loop().run(task); }

    Address listen(std::function<void(std::unique_ptr<Link>)> on_accept) {
        Address address;
        on_loop([&] {
            auto result = network.listen({"127.0.0.1", 0}, std::move(on_accept));
            ASSERT_TRUE(result.ok()) << result.status().message();
            listener = std::move(*result);
            address = listener->address();
        });
        return address;
    }
    /// A listener that sends back what it receives, with its own back pressure.
    Address listen_echo() {
        return listen([this](std::unique_ptr<Link> link) {
            Link* raw = link.get();
            raw->on_bytes = [raw](ByteSpan bytes) { raw->send(Bytes(bytes.begin(), bytes.end())); };
            links.push_back(std::move(link));
        });
    }
    void connect(const Address& address, std::function<void(Link&)> ready) {
        on_loop([&, ready] {
            network.connect(address, 5s, [this, ready](Result<std::unique_ptr<Link>> link) {
                ASSERT_TRUE(link.ok()) << link.status().message();
                ready(**link);
                links.push_back(std::move(*link));
            });
        });
    }

    std::unique_ptr<Listener> listener;
    std::vector<std::unique_ptr<Link>> links;  // on the loop
    TcpNetwork network;                        // last: it must end first
};

TEST_F(Tcp, echoes_large_data_both_ways) {
    const Address address = listen_echo();
    const Bytes sent = pattern(20 << 20);
    Bytes received;
    std::atomic<size_t> n_received = 0;
    connect(address, [&](Link& link) {
        link.on_bytes = [&](ByteSpan bytes) {
            received.insert(received.end(), bytes.begin(), bytes.end());
            n_received = received.size();
        };
        // Pieces of odd sizes, more of them than one write takes.
        for (size_t at = 0, size = 1; at < sent.size(); at += size, size = std::min(2 * size + 1, size_t{100000})) {
            const size_t end = std::min(sent.size(), at + size);
            link.send(Bytes(sent.begin() + static_cast<ptrdiff_t>(at), sent.begin() + static_cast<ptrdiff_t>(end)));
        }
    });
    ASSERT_TRUE(wait_for([&] { return n_received == sent.size(); }));
    EXPECT_EQ(received, sent);
}

TEST_F(Tcp, sends_from_memory_of_others_and_receives_into_it) {
    const Address address = listen_echo();
    const auto shared = std::make_shared<const Bytes>(pattern(8 << 20));
    const std::weak_ptr<const Bytes> kept = shared;
    const Bytes first = pattern(1000, 2), last = pattern(1000, 3);
    Bytes received(first.size() + shared->size() + last.size());
    size_t n_received = 0, n_in_place = 0;
    std::atomic<bool> all_received = false;
    connect(address, [&](Link& link) {
        // Room for all but the last bytes, so that both ways of receiving are taken.
        link.room = [&] { return std::span(received).first(received.size() - 500).subspan(n_received); };
        link.on_bytes = [&](ByteSpan bytes) {
            if (bytes.data() == received.data() + n_received) {
                n_in_place += bytes.size();
            } else {
                ASSERT_LE(n_received + bytes.size(), received.size());
                std::copy(bytes.begin(), bytes.end(), received.begin() + static_cast<ptrdiff_t>(n_received));
            }
            n_received += bytes.size();
            all_received = n_received == received.size();
            if (n_received >= received.size() - 500) link.room = nullptr;
        };
        link.send(Bytes(first));
        const size_t half = shared->size() / 2;
        link.send_shared(ByteSpan(*shared).first(half), shared);
        link.send_shared(ByteSpan(*shared).subspan(half), shared);
        link.send(Bytes(last));
    });
    Bytes sent(first);
    sent.insert(sent.end(), shared->begin(), shared->end());
    sent.insert(sent.end(), last.begin(), last.end());
    ASSERT_TRUE(wait_for([&] { return all_received.load(); }));
    on_loop([&] {
        EXPECT_EQ(received, sent);
        EXPECT_EQ(n_in_place, received.size() - 500);
    });
    EXPECT_EQ(kept.use_count(), 1) << "what was sent is not kept";
}

TEST_F(Tcp, close_with_flush_sends_everything_first) {
    const Bytes sent = pattern(30 << 20);
    Bytes received;
    std::atomic<bool> closed = false;
    Status status;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        link->on_bytes = [&](ByteSpan bytes) { received.insert(received.end(), bytes.begin(), bytes.end()); };
        link->on_closed = [&](Status reason) {
            status = std::move(reason);
            closed = true;
        };
        // Unread input at the closing side must not destroy what it has sent.
        link->send(pattern(100000));
        links.push_back(std::move(link));
    });
    connect(address, [&](Link& link) {
        link.on_closed = [](const Status&) { FAIL() << "a callback after close()"; };
        link.on_bytes = [](ByteSpan) { FAIL() << "a callback after close()"; };
        link.send(Bytes(sent));
        link.close(true);
        EXPECT_GT(link.unsent(), 0u);
    });
    ASSERT_TRUE(wait_for([&] { return closed.load(); }));
    EXPECT_EQ(received, sent);
    EXPECT_EQ(status.code(), Code::unavailable) << status.message();
}

TEST_F(Tcp, flush_waits_for_a_slow_reader_before_a_process_may_end) {
    // The receiver sends all the time, so that a hard end of the sender would reset the connection.
    auto sender = std::make_unique<TcpNetwork>();
    std::atomic<size_t> n_received = 0;
    std::atomic<bool> closed = false;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        Link* raw = link.get();
        raw->on_bytes = [&, raw](ByteSpan bytes) {
            std::this_thread::sleep_for(5ms);
            n_received += bytes.size();
            raw->send(Bytes(100));
        };
        raw->on_closed = [&](const Status&) { closed = true; };
        links.push_back(std::move(link));
    });
    std::atomic<bool> sent = false;
    sender->loop().run([&] {
        sender->connect(address, 5s, [&](Result<std::unique_ptr<Link>> link) {
            ASSERT_TRUE(link.ok());
            (*link)->send(Bytes(10 << 20));
            (*link)->close(true);
            sent = true;
        });
    });
    ASSERT_TRUE(wait_for([&] { return sent.load(); }));
    // Not before the reader is done: it holds its end open until it has read the last byte.
    std::thread end_reader([&] {
        wait_for([&] { return closed.load(); });
        on_loop([&] { links.clear(); });
    });
    EXPECT_TRUE(sender->flush(20s));
    sender.reset();
    end_reader.join();
    EXPECT_EQ(n_received, 10u << 20);
}

TEST_F(Tcp, destroying_a_link_closes_it) {
    std::atomic<bool> closed = false;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        link->on_closed = [&](const Status&) { closed = true; };
        links.push_back(std::move(link));
    });
    on_loop([&] { network.connect(address, 5s, [](Result<std::unique_ptr<Link>>) {}); });
    EXPECT_TRUE(wait_for([&] { return closed.load(); }));
}

TEST_F(Tcp, connect_tells_refused_unknown_and_timeout_apart) {
    Address nobody;
    on_loop([&] { nobody = (*network.listen({"127.0.0.1", 0}, [](std::unique_ptr<Link>) {}))->address(); });
    std::atomic<int> n_done = 0;
    Status refused, unknown;
    on_loop([&] {
        network.connect(nobody, 5s, [&](auto link) { refused = link.status(), ++n_done; });
        network.connect({"no-such-host.invalid", 1}, 20s, [&](auto link) { unknown = link.status(), ++n_done; });
    });
    ASSERT_TRUE(wait_for([&] { return n_done == 2; }, 30s));
    EXPECT_EQ(refused.code(), Code::unavailable) << refused.message();
    EXPECT_EQ(unknown.code(), Code::invalid_argument) << unknown.message();
}

TEST_F(Tcp, connect_times_out) {
    // A listener of the system whose queue is full answers nothing.
    const int full = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(where);
    ASSERT_EQ(bind(full, reinterpret_cast<sockaddr*>(&where), size), 0);
    ASSERT_EQ(::listen(full, 0), 0);
    ASSERT_EQ(getsockname(full, reinterpret_cast<sockaddr*>(&where), &size), 0);
    std::atomic<int> n_timeouts = 0, n_done = 0;
    on_loop([&] {
        for (int i = 0; i < 8; ++i) {
            network.connect({"127.0.0.1", ntohs(where.sin_port)}, 200ms, [&](Result<std::unique_ptr<Link>> link) {
                if (link.ok()) {
                    links.push_back(std::move(*link));
                } else if (link.status().code() == Code::timeout) {
                    ++n_timeouts;
                }
                ++n_done;
            });
        }
    });
    EXPECT_TRUE(wait_for([&] { return n_done == 8; }));
    EXPECT_GT(n_timeouts, 0);
    ::close(full);
}

TEST_F(Tcp, listen_reports_a_taken_port) {
    const Address address = listen_echo();
    on_loop([&] {
        Result<std::unique_ptr<Listener>> second = network.listen(address, [](std::unique_ptr<Link>) {});
        ASSERT_FALSE(second.ok());
        EXPECT_NE(second.status().message().find(address.str()), std::string::npos);
    });
}

TEST_F(Tcp, carries_many_links_at_once) {
    constexpr size_t n_links = 200, n_bytes = 10000;
    const Address address = listen_echo();
    std::atomic<size_t> n_complete = 0;
    std::vector<Bytes> received(n_links);
    for (size_t i = 0; i < n_links; ++i) {
        connect(address, [&, i](Link& link) {
            link.on_bytes = [&, i](ByteSpan bytes) {
                received[i].insert(received[i].end(), bytes.begin(), bytes.end());
                if (received[i].size() == n_bytes) ++n_complete;
            };
            link.send(pattern(n_bytes, static_cast<uint32_t>(i)));
        });
    }
    ASSERT_TRUE(wait_for([&] { return n_complete == n_links; }));
    for (size_t i = 0; i < n_links; ++i)
        EXPECT_EQ(received[i], pattern(n_bytes, static_cast<uint32_t>(i)));
}

TEST_F(Tcp, a_link_may_be_destroyed_in_its_own_callbacks) {
    std::atomic<int> n_destroyed = 0, n_peers_closed = 0;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        Link* raw = link.get();
        std::string mark(100, 'x');  // lives in the callback: it must survive until the callback returns
        auto forget = [this, raw] { std::erase_if(links, [raw](const auto& each) { return each.get() == raw; }); };
        raw->on_bytes = [&, forget, mark](ByteSpan) {
            forget();
            if (mark == std::string(100, 'x')) ++n_destroyed;
        };
        raw->on_closed = [&, forget, mark](const Status&) {
            forget();
            if (mark == std::string(100, 'x')) ++n_destroyed;
        };
        links.push_back(std::move(link));
    });
    connect(address, [&](Link& link) {
        link.on_closed = [&](const Status&) { ++n_peers_closed; };
        link.send(pattern(1000000));
    });
    ASSERT_TRUE(wait_for([&] { return n_destroyed == 1 && n_peers_closed == 1; }));
    on_loop([&] { network.connect(address, 5s, [](Result<std::unique_ptr<Link>>) {}); });
    ASSERT_TRUE(wait_for([&] { return n_destroyed == 2; }));
}

TEST_F(Tcp, a_reader_that_stops_holds_the_sender_back) {
    std::atomic<Link*> receiver = nullptr;
    std::atomic<size_t> n_received = 0;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        link->set_reading(false);
        link->on_bytes = [&](ByteSpan bytes) { n_received += bytes.size(); };
        receiver = link.get();
        links.push_back(std::move(link));
    });
    constexpr size_t size = 64 << 20;
    Link* sender = nullptr;
    std::atomic<int> n_drained = 0;
    connect(address, [&](Link& link) {
        sender = &link;
        link.on_drained = [&] { ++n_drained; };
        for (int i = 0; i < 64; ++i)
            link.send(Bytes(size / 64));
    });
    ASSERT_TRUE(wait_for([&] { return receiver.load() != nullptr; }));
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(n_received, 0u);
    on_loop([&] { EXPECT_GT(sender->unsent(), size / 4); });
    on_loop([&] { receiver.load()->set_reading(true); });
    ASSERT_TRUE(wait_for([&] { return n_received == size; }));
    on_loop([&] { EXPECT_EQ(sender->unsent(), 0u); });
    EXPECT_EQ(n_drained, 1);
}

TEST_F(Tcp, reads_what_the_peer_said_before_it_closed) {
    // The peer refuses without reading; our writes break, but its last words arrive.
    std::string heard;
    std::atomic<bool> closed = false;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        link->set_reading(false);
        link->send(Bytes{'b', 'y', 'e'});
        link->close(true);
    });
    connect(address, [&](Link& link) {
        link.on_bytes = [&](ByteSpan bytes) { heard.append(bytes.begin(), bytes.end()); };
        link.on_closed = [&](const Status&) { closed = true; };
        for (int i = 0; i < 200; ++i)
            link.send(Bytes(100000));
    });
    ASSERT_TRUE(wait_for([&] { return closed.load(); }));
    EXPECT_EQ(heard, "bye");
}

TEST_F(Tcp, a_listener_may_end_in_its_own_callback) {
    std::atomic<int> n_accepted = 0;
    const Address address = listen([&](std::unique_ptr<Link>) {
        listener.reset();
        ++n_accepted;
    });
    on_loop([&] { network.connect(address, 5s, [](Result<std::unique_ptr<Link>>) {}); });
    ASSERT_TRUE(wait_for([&] { return n_accepted == 1; }));
}

TEST_F(Tcp, timers_run_once_in_order_and_can_be_cancelled) {
    std::string order;
    std::atomic<bool> done = false;
    on_loop([&] {
        Loop& loop = network.loop();
        loop.after(30ms, [&] { order += 'c', done = true; });
        loop.after(10ms, [&] { order += 'a'; });
        const Loop::TimerId dropped = loop.after(20ms, [&] { order += 'x'; });
        loop.after(15ms, [&, dropped] {
            order += 'b';
            network.loop().cancel(dropped);
        });
        loop.cancel(0);
        loop.cancel(999999);
    });
    ASSERT_TRUE(wait_for([&] { return done.load(); }));
    EXPECT_EQ(order, "abc");
}

TEST_F(Tcp, stop_with_open_links_and_pending_work_is_clean) {
    const Address address = listen_echo();
    for (int i = 0; i < 10; ++i)
        connect(address, [](Link& link) { link.send(Bytes(10 << 20)); });
    on_loop([&] {
        network.loop().after(1h, [] {});
        network.connect({"10.255.255.1", 9}, 1h, [](Result<std::unique_ptr<Link>>) {});
    });
    network.stop();
    network.stop();
}

// Whoever is turned away gets a last word, but does not keep a file descriptor for long by never closing.
TEST_F(Tcp, connections_that_are_closing_are_bounded) {
    const auto n_files = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                             std::filesystem::directory_iterator());
    };
    constexpr int n_strangers = 500, n_most = 256;
    std::atomic<int> n_accepted = 0;
    const Address address = listen([&](std::unique_ptr<Link> link) {
        link->send({'n', 'o'});
        link->close(true);
        ++n_accepted;
    });
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(address.port);
    const auto before = n_files();
    std::vector<int> strangers;
    for (int i = 0; i < n_strangers; ++i) {
        strangers.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        ASSERT_EQ(::connect(strangers.back(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
    }
    ASSERT_TRUE(wait_for([&] { return n_accepted == n_strangers; }));
    on_loop([&] { EXPECT_LE(n_files(), before + n_strangers + n_most); });
    for (int stranger : strangers) {
        char word[8];
        EXPECT_EQ(recv(stranger, word, sizeof(word), 0), 2) << "the last word came";
        close(stranger);
    }
    EXPECT_TRUE(network.flush(20s));
}

}  // namespace
}  // namespace linkcpp::net
