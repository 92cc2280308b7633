#include "worker/loop_computer.h"

#include <utility>

namespace linkcpp::worker {

LoopComputer::~LoopComputer() {
    std::unique_lock lock(mutex_);
    stop_ = true;
    rests_.wait(lock, [this] { return !working_; });
}

void LoopComputer::start(ComputeJob job, Done done) {
    {
        const std::lock_guard lock(mutex_);
        jobs_.emplace_back(std::move(job), std::move(done));
        if (std::exchange(working_, true)) return;
    }
    loop_.run_after([this] { work(); });
}

void LoopComputer::work() {
    std::unique_lock lock(mutex_);
    while (!stop_ && !jobs_.empty()) {
        auto [job, done] = std::move(jobs_.front());
        jobs_.pop_front();
        lock.unlock();
        ComputeOutcome outcome = runner_.run(job, pairs_done_, stop_);
        if (!stop_) {
            loop_.run([&] {
                const Done own = std::move(done);  // it ends on the loop
                own(std::move(outcome));
            });
        }
        lock.lock();
    }
    working_ = false;
    rests_.notify_all();
}

}  // namespace linkcpp::worker
