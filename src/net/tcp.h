#pragma once
// The real network: TCP over Boost.Asio, one thread that runs the loop. Boost is compiled in tcp.cpp only.

#include "net/loop.h"

namespace linkcpp::net {

/// Owns its loop and its thread (named "lc-net"). Listeners and links must be destroyed before it, on the loop thread or
/// after stop().
class TcpNetwork final : public Network {
  public:
    TcpNetwork();
    ~TcpNetwork() override;  ///< stop()

    Loop& loop() override;
    void connect(const Address& address, Duration timeout,
                 std::function<void(Result<std::unique_ptr<Link>>)> done) override;
    Result<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::function<void(std::unique_ptr<Link>)> on_accept) override;
    /// Waits until the links that were closed with `flush` are gone: everything sent, and read by the other ends. To be
    /// called before a process ends, or what is on its way may be lost. False: it took longer than `limit`. Any thread
    /// but the loop's.
    bool flush(Duration limit);
    /// Ends the thread; callbacks that have not started never run. Any thread but the loop's.
    void stop();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// Runs `task` on the loop and waits until it is done. Any thread but the loop's.
void run_on(Loop& loop, const std::function<void()>& task);

}  // namespace linkcpp::net
