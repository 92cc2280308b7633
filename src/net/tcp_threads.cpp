#include "net/tcp_threads.h"

#include <boost/asio/post.hpp>
#include <pthread.h>

namespace linkcpp::net {

namespace {

/// How long the loop may be left alone between two callers.
constexpr std::chrono::milliseconds grace{10};

}  // namespace

TcpThreads::TcpThreads(boost::asio::io_context& io, int n_threads) : io_(io), work_(io.get_executor()) {
    for (int i = 0; i < n_threads; ++i) {
        threads_.emplace_back([this] {
            pthread_setname_np(pthread_self(), "lc-net");
            run_own();
        });
    }
}

bool TcpThreads::left_to_callers() const { return n_callers_ > 0 || std::chrono::steady_clock::now() - left_ < grace; }

void TcpThreads::run_own() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        if (left_to_callers()) {
            ++n_parked_;
            parked_.wait_for(lock, grace);
            --n_parked_;
            continue;
        }
        lock.unlock();
        io_.run_one();
        lock.lock();
        if (n_callers_ == 0) continue;
        // One came while we were at it, and waits behind us: what we did may be all that he waits for.
        callers_.notify_all();
        if (driving_) boost::asio::post(io_, [] {});
    }
}

bool TcpThreads::run_until(const std::function<bool()>& done) {
    std::unique_lock lock(mutex_);
    ++n_callers_;
    while (!stopped_ && !done()) {
        if (driving_) {
            callers_.wait(lock);
            continue;
        }
        driving_ = true;
        lock.unlock();
        io_.run_one();
        lock.lock();
        driving_ = false;
        if (n_callers_ > 1) callers_.notify_all();
    }
    if (--n_callers_ == 0) left_ = std::chrono::steady_clock::now();
    return done();
}

void TcpThreads::posted() {
    if (n_callers_ > 0 || n_parked_ == 0) return;
    const std::lock_guard lock(mutex_);
    left_ = {};
    parked_.notify_all();
}

void TcpThreads::happened() {
    if (n_callers_ == 0) return;
    const std::lock_guard lock(mutex_);
    callers_.notify_all();
    if (driving_) boost::asio::post(io_, [] {});
}

void TcpThreads::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        io_.stop();
        callers_.notify_all();
        parked_.notify_all();
    }
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

}  // namespace linkcpp::net
