#include "net/tcp_threads.h"

#include "base/threads.h"

#include <boost/asio/post.hpp>

namespace linkcpp::net {

namespace {

/// How long the loop may be left alone between two callers.
constexpr std::chrono::milliseconds grace{10};
/// When the last long task was so long ago, those who stand by stop looking at the clock.
constexpr std::chrono::seconds watch{1};

}  // namespace

TcpThreads::TcpThreads(boost::asio::io_context& io, int n_threads) : io_(io), work_(io.get_executor()) {
    for (int i = 0; i < n_threads; ++i) {
        threads_.push_back(start_thread("lc-net", [this] { run_own(); }));
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
        const std::thread::id me = std::this_thread::get_id();
        if (driver_ != std::thread::id{}) {
            stand_by(lock);
            continue;
        }
        driver_ = me;
        lock.unlock();
        io_.run_one();
        lock.lock();
        if (driver_ == me) driver_ = {};
        if (n_callers_ == 0) continue;
        // One came while we were at it, and waits behind us: what we did may be all that he waits for.
        callers_.notify_all();
        if (driving_) boost::asio::post(io_, [] {});
    }
}

void TcpThreads::stand_by(std::unique_lock<std::mutex>& lock) {
    const Time now = std::chrono::steady_clock::now();
    if (away_ && now - *away_ >= grace) {
        away_.reset();
        driver_ = {};  // it finds out when it is back
    } else if (away_ || now - last_away_ < watch) {
        standby_.wait_until(lock, away_.value_or(now) + grace);
    } else {
        ++n_resting_;
        standby_.wait(lock);
        --n_resting_;
    }
}

void TcpThreads::run_long(const std::function<void()>& task) {
    const std::thread::id me = std::this_thread::get_id();
    {
        const std::lock_guard lock(mutex_);
        if (driver_ == me) {
            away_ = last_away_ = std::chrono::steady_clock::now();
            if (n_resting_ > 0) standby_.notify_one();
        }
    }
    task();
    const std::lock_guard lock(mutex_);
    if (driver_ == me) away_.reset();
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
        standby_.notify_all();
    }
    for (std::thread& thread : threads_) {
        if (thread.joinable()) thread.join();
    }
}

}  // namespace linkcpp::net
