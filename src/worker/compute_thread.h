#pragma once
// The one thread that computes, "lc-compute". Jobs run in the order they were started; results go back through the loop.

#include "net/loop.h"
#include "worker/computer.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace linkcpp::worker {

class ComputeThread final : public Computer {
  public:
    /// `loop` outlives this object.
    explicit ComputeThread(net::Loop& loop);
    /// Ends the thread after the part that is being computed; jobs that are left are dropped, their `done` is not called.
    ~ComputeThread() override;

    void start(ComputeJob job, Done done) override;
    uint64_t pairs_done() const override { return pairs_done_; }

  private:
    void run();

    net::Loop& loop_;
    std::atomic<uint64_t> pairs_done_ = 0;
    std::atomic<bool> stop_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::pair<ComputeJob, Done>> jobs_;  // protected by mutex_
    std::thread thread_;
};

}  // namespace linkcpp::worker
