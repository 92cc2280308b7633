#include "worker/compute_thread.h"

#include <pthread.h>

namespace linkcpp::worker {

ComputeThread::ComputeThread(net::Loop& loop) : loop_(loop) {
    thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "lc-compute");
        run();
    });
}

ComputeThread::~ComputeThread() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

void ComputeThread::start(ComputeJob job, Done done) {
    {
        std::lock_guard lock(mutex_);
        jobs_.emplace_back(std::move(job), std::move(done));
    }
    changed_.notify_one();
}

void ComputeThread::run() {
    while (true) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
        if (stop_) return;
        auto [job, done] = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        // Shared, because a task of the loop must be copyable.
        auto outcome = std::make_shared<ComputeOutcome>(compute(job, pairs_done_, stop_));
        if (stop_) return;
        loop_.post([outcome, done_moved = std::move(done)] { done_moved(std::move(*outcome)); });
    }
}

}  // namespace linkcpp::worker
