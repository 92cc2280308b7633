// The loop of the real network: its own threads, and callers that run it while they wait.
#include "net/tcp.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <thread>

namespace linkcpp::net {
namespace {

using namespace std::chrono_literals;

/// Fails when two callbacks overlap.
class Alone {
  public:
    void operator()() {
        EXPECT_EQ(++inside_, 1) << "two callbacks at a time";
        std::this_thread::yield();
        --inside_;
        ++count;
    }
    std::atomic<int> count = 0;

  private:
    std::atomic<int> inside_ = 0;
};

TEST(TcpLoop, CallbacksOfAllKindsRunOneAtATime) {
    TcpNetwork network(2);
    Loop& loop = network.loop();
    Alone alone;
    constexpr int n_threads = 4, n_rounds = 200;
    std::vector<std::thread> threads;
    for (int t = 0; t < n_threads; ++t) {
        threads.emplace_back([&] {
            for (int round = 0; round < n_rounds; ++round) {
                std::atomic<bool> is_done = false;
                loop.run([&] {
                    alone();
                    loop.after(10us, [&] {
                        alone();
                        loop.post([&] {
                            alone();
                            is_done = true;
                        });
                    });
                });
                EXPECT_TRUE(loop.run_until([&] { return is_done.load(); }));
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    EXPECT_EQ(alone.count, 3 * n_threads * n_rounds);
}

TEST(TcpLoop, ACallerWhoWaitsAloneRunsTheCallbacksHimself) {
    TcpNetwork network;
    Loop& loop = network.loop();
    std::thread::id ran_on;
    // The first time the loop's own thread may have been there before.
    for (int round = 0; round < 100 && ran_on != std::this_thread::get_id(); ++round) {
        std::atomic<bool> is_done = false;
        loop.run([&] {
            loop.after(100us, [&] {
                ran_on = std::this_thread::get_id();
                is_done = true;
            });
        });
        ASSERT_TRUE(loop.run_until([&] { return is_done.load(); }));
    }
    EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(TcpLoop, AfterACallerTheLoopGoesOnByItself) {
    TcpNetwork network;
    std::promise<void> by_timer, by_post;
    std::atomic<bool> is_done = false;
    network.loop().run([&] {
        network.loop().after(1ms, [&] { is_done = true; });
        network.loop().after(30ms, [&] { by_timer.set_value(); });
    });
    ASSERT_TRUE(network.loop().run_until([&] { return is_done.load(); }));
    network.loop().post([&] { by_post.set_value(); });
    EXPECT_EQ(by_post.get_future().wait_for(20s), std::future_status::ready);
    EXPECT_EQ(by_timer.get_future().wait_for(20s), std::future_status::ready);
}

TEST(TcpLoop, WhatIsPutOffRunsBesideTheLoop) {
    TcpNetwork network(2);
    // Again and again: whichever thread has the loop, the other one takes over.
    for (int round = 0; round < 5; ++round) {
        std::promise<void> others_ran, finished;
        network.loop().post([&] {
            network.loop().run_after([&] {
                // It waits for callbacks, which could not run if it were one of them.
                network.loop().post([&] { others_ran.set_value(); });
                EXPECT_EQ(others_ran.get_future().wait_for(20s), std::future_status::ready);
                finished.set_value();
            });
        });
        ASSERT_EQ(finished.get_future().wait_for(60s), std::future_status::ready);
    }
}

/// A second thread that is woken for nothing takes a processor that the task needs.
TEST(TcpLoop, ShortTasksStayOnTheThreadThatHasTheLoop) {
    TcpNetwork network(2);
    constexpr int n_tasks = 500;
    int n_changes = 0;
    std::thread::id last;
    for (int task = 0; task < n_tasks; ++task) {
        std::promise<std::thread::id> ran_on;
        network.loop().post([&] { network.loop().run_after([&] { ran_on.set_value(std::this_thread::get_id()); }); });
        const std::thread::id here = ran_on.get_future().get();
        if (std::exchange(last, here) != here) ++n_changes;
    }
    // Some, where the machine stops a task for longer than the others wait.
    EXPECT_LT(n_changes, n_tasks / 10);
}

TEST(TcpLoop, AnotherThreadCanEndTheWaitOfACaller) {
    TcpNetwork network;
    std::atomic<bool> is_done = false, waits = false;
    std::thread other([&] {
        while (!waits)
            std::this_thread::yield();
        network.loop().run([&] { is_done = true; });
    });
    EXPECT_TRUE(network.loop().run_until([&] {
        waits = true;
        return is_done.load();
    }));
    other.join();
}

TEST(TcpLoop, StoppingEndsTheWaitOfCallers) {
    TcpNetwork network;
    std::atomic<int> n_waiting = 0, n_ended = 0;
    std::vector<std::thread> callers;
    for (int c = 0; c < 3; ++c) {
        callers.emplace_back([&] {
            EXPECT_FALSE(network.loop().run_until([&, counted = false]() mutable {
                if (!std::exchange(counted, true)) ++n_waiting;
                return false;
            }));
            ++n_ended;
        });
    }
    while (n_waiting < 3)
        std::this_thread::yield();
    network.stop();
    for (std::thread& caller : callers)
        caller.join();
    EXPECT_EQ(n_ended, 3);
}

}  // namespace
}  // namespace linkcpp::net
