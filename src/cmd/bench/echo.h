#pragma once
// What the network alone costs: a thread that reads so many bytes from a loopback TCP connection and writes so many back.

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/status.h"
#include "cmd/bench/delay_proxy.h"

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace linkcpp::cmd::bench {

class Echo {
  public:
    /// `round_trip`: through a relay that holds the bytes so long; zero: without one. Errors: io.
    static Result<std::unique_ptr<Echo>> start(uint64_t bytes_out, uint64_t bytes_in, Duration round_trip = {});
    ~Echo();
    Echo(const Echo&) = delete;
    Echo& operator=(const Echo&) = delete;
    /// The time of one exchange. Errors: io.
    Result<Duration> exchange();

  private:
    Echo(std::unique_ptr<DelayProxy> relay, Descriptor client, Descriptor server, uint64_t bytes_out,
         uint64_t bytes_in);

    std::unique_ptr<DelayProxy> relay_;
    Descriptor client_, server_;
    std::vector<uint8_t> out_, in_;
    std::thread thread_;
};

}  // namespace linkcpp::cmd::bench
