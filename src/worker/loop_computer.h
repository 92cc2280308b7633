#pragma once
// Computes on the thread that brought the request in, while another thread of the network goes on with the loop: a request
// changes threads nowhere between its arrival and its answer. One thread at a time computes; jobs run in the order in which
// they were started.

#include "net/loop.h"
#include "worker/job_runner.h"

#include <condition_variable>
#include <deque>
#include <mutex>

namespace linkcpp::worker {

class LoopComputer final : public Computer {
  public:
    /// `loop` outlives this object and is run by two threads of its own at least.
    explicit LoopComputer(net::Loop& loop) : loop_(loop) {}
    /// Waits for the part that is being computed; jobs that are left are dropped, their `done` is not called. Not on the loop.
    ~LoopComputer() override;

    void start(ComputeJob job, Done done) override;
    uint64_t pairs_done() const override { return pairs_done_; }

  private:
    void work();

    net::Loop& loop_;
    std::atomic<uint64_t> pairs_done_ = 0;
    std::atomic<bool> stop_ = false;
    std::mutex mutex_;
    bool working_ = false;  // protected by mutex_, as is the next one
    std::deque<std::pair<ComputeJob, Done>> jobs_;
    std::condition_variable rests_;
    JobRunner runner_{loop_};  // of the thread that works
};

}  // namespace linkcpp::worker
