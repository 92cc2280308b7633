#pragma once
// A relay on loopback that holds every byte for a while: a network with a round trip, whatever runs over it.

#include "net/tcp.h"

#include <atomic>
#include <memory>
#include <vector>

namespace linkcpp::cmd::bench {

class DelayProxy {
  public:
    /// Listens on a free port of loopback and passes everything on to `target`.
    static Result<std::unique_ptr<DelayProxy>> start(const net::Address& target);
    ~DelayProxy();

    /// A port of loopback that is free now.
    static Result<uint16_t> free_port();
    /// Until somebody accepts connections there. Errors: timeout.
    static Status wait_for(const net::Address& address, Duration limit);

    const net::Address& address() const { return address_; }
    /// Half of it each way, for what arrives from now on. Any thread.
    void set_round_trip(Duration round_trip) { one_way_ = (round_trip / 2).count(); }
    /// Bytes to the target / back, so far. Any thread.
    uint64_t bytes_out() const { return bytes_out_; }
    uint64_t bytes_in() const { return bytes_in_; }

  private:
    class Connection;
    explicit DelayProxy(net::Address target);

    const net::Address target_;
    net::Address address_;
    std::atomic<int64_t> one_way_{0};
    std::atomic<uint64_t> bytes_out_{0}, bytes_in_{0};
    net::TcpNetwork network_;
    std::unique_ptr<net::Listener> listener_;
    std::vector<std::unique_ptr<Connection>> connections_;  // on the loop
};

}  // namespace linkcpp::cmd::bench
