#pragma once
// What the network alone costs: a thread that reads so many bytes from a loopback TCP connection and writes so many back.

#include "base/clock.h"
#include "base/status.h"

#include <cstdint>
#include <thread>
#include <vector>

namespace linkcpp::cmd::bench {

class Echo {
  public:
    /// Errors: io.
    static Result<std::unique_ptr<Echo>> start(uint64_t bytes_out, uint64_t bytes_in);
    ~Echo();
    /// The time of one exchange. Errors: io.
    Result<Duration> exchange();

  private:
    Echo(int client, int server, uint64_t bytes_out, uint64_t bytes_in);

    int client_, server_;
    std::vector<uint8_t> out_, in_;
    std::thread thread_;
};

}  // namespace linkcpp::cmd::bench
