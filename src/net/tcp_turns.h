#pragma once
// What makes a loop of several threads look like one thread: callbacks take turns under a lock. Private to tcp*.cpp.

#include "net/loop.h"

#include <concepts>
#include <mutex>
#include <utility>
#include <vector>

namespace linkcpp::net {

class Connection;

class Turns {
  public:
    /// Runs `f` alone, then sends what connections were given meanwhile, one write each; then, when others may have their
    /// turns, what was put off.
    template <typename F>
    void run(F&& f) {
        std::vector<Loop::Task> put_off;
        {
            const std::lock_guard lock(mutex_);
            f();
            send_all();
            put_off.swap(put_off_);
        }
        for (Loop::Task& task : put_off)
            task();
    }

    /// Runs `f`, and destroys it, in a turn: a handler for Asio.
    template <typename F>
    class Handler {
      public:
        Handler(Turns& turns, F f) : turns_(&turns), f_(std::move(f)) {}
        template <typename... A>
        requires std::invocable<F&, A&...>
        void operator()(A&&... arguments) {
            turns_->run([&] {
                F own(std::move(f_));
                own(arguments...);
            });
        }

      private:
        Turns* turns_;
        F f_;
    };
    template <typename F>
    Handler<F> handler(F f) {
        return {*this, std::move(f)};
    }

    // In a turn:
    void put_off(Loop::Task task) { put_off_.push_back(std::move(task)); }
    /// `connection` has something to send at the end of this turn.
    void will_send(std::shared_ptr<Connection> connection) { senders_.push_back(std::move(connection)); }

  private:
    void send_all();

    std::mutex mutex_;
    std::vector<std::shared_ptr<Connection>> senders_;  // protected by mutex_
    std::vector<Loop::Task> put_off_;                   // protected by mutex_
};

}  // namespace linkcpp::net
