#pragma once
// The threads that run a loop: its own, and those of callers that wait for something. Private to tcp*.cpp.
//
// A caller who waits runs the loop himself: what he waits for then happens on his thread, without the two changes of
// threads that cost more than the message itself. While callers come again and again, as a decode does for every layer,
// the loop's own threads stay out of the way and only look after the loop when it has been left alone for a moment.
//
// Of the own threads one runs the loop, and the others stand by. They take over when that one has been away in a long task
// (Loop::run_after) for a moment, not at once: a woken thread takes a processor that the task needs, and most tasks are
// over before anything else happens.

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace linkcpp::net {

class TcpThreads {
  public:
    TcpThreads(boost::asio::io_context& io, int n_threads);
    ~TcpThreads() { stop(); }
    TcpThreads(const TcpThreads&) = delete;
    TcpThreads& operator=(const TcpThreads&) = delete;

    /// Runs callbacks on this thread until `done()`; false: the loop was stopped before. `done` is called on this thread.
    bool run_until(const std::function<bool()>& done);
    /// Something was posted: when nobody runs the loop, its own threads do it at once.
    void posted();
    /// Something happened in a turn that was no callback: callers may have been waiting for it.
    void happened();
    /// Runs `task`, which may take long: when it does, others look after the loop.
    void run_long(const std::function<void()>& task);
    void stop();

  private:
    using Time = std::chrono::steady_clock::time_point;

    void run_own();
    bool left_to_callers() const;
    void stand_by(std::unique_lock<std::mutex>& lock);

    boost::asio::io_context& io_;
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
    std::mutex mutex_;
    // All protected by mutex_; the atomics are also looked at without it, to save it.
    std::atomic<int> n_callers_ = 0, n_parked_ = 0;
    bool driving_ = false;  ///< one of the callers is running callbacks; only one does, the others wait for their turn
    bool stopped_ = false;
    Time left_{};               ///< when the last caller left
    std::thread::id driver_;    ///< the own thread that runs the loop; none: nobody, or a caller
    std::optional<Time> away_;  ///< since when the driver has been in a long task
    Time last_away_{};
    int n_resting_ = 0;  ///< that stand by and do not look at the clock
    std::condition_variable callers_, parked_, standby_;
    std::vector<std::thread> threads_;
};

}  // namespace linkcpp::net
