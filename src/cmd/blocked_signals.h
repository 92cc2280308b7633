#pragma once
// For programs that serve until Ctrl-C: the main thread waits for the signal, the other threads never see it.

#include <chrono>
#include <csignal>

namespace linkcpp::cmd {

/// Threads that are made while this lives leave SIGINT and SIGTERM to the main thread.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigemptyset(&set_);
        sigaddset(&set_, SIGINT);
        sigaddset(&set_, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

    int wait() const {
        int signal = 0;
        sigwait(&set_, &signal);
        return signal;
    }
    /// False: none came within `limit`.
    bool wait_for(std::chrono::nanoseconds limit) const {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
        const timespec time{seconds.count(), (limit - seconds).count()};
        return sigtimedwait(&set_, nullptr, &time) > 0;
    }

  private:
    sigset_t set_, before_;
};

}  // namespace linkcpp::cmd
