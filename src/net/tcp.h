#pragma once
// The real network: TCP over Boost.Asio. Its loop is run by threads of its own and by callers that wait (run_until). Boost is
// compiled in tcp*.cpp only.

#include "net/loop.h"

namespace linkcpp::net {

/// Owns its loop and its threads (named "lc-net"). Listeners and links must be destroyed before it, on the loop or after
/// stop().
class TcpNetwork final : public Network {
  public:
    /// Two threads where callbacks use run_after(): one goes on with the loop while the other one does that.
    explicit TcpNetwork(int n_threads = 1);
    ~TcpNetwork() override;  ///< stop()

    Loop& loop() override;
    void connect(const Address& address, Duration timeout,
                 std::function<void(Result<std::unique_ptr<Link>>)> done) override;
    Result<std::unique_ptr<Listener>> listen(const Address& address,
                                             std::function<void(std::unique_ptr<Link>)> on_accept) override;
    /// Waits until the links that were closed with `flush` are gone: everything sent, and read by the other ends. To be
    /// called before a process ends, or what is on its way may be lost. False: it took longer than `limit`. Any thread
    /// that is not on the loop.
    bool flush(Duration limit);
    /// Ends the threads; callbacks that have not started never run. Any thread that is not on the loop.
    void stop();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace linkcpp::net
