#pragma once
// Serves a set of slices that changes: the server of today is drained, one with other slices takes its place at the same
// address. Slices that stay are not loaded again, and nothing is loaded before what goes has left the memory. Belongs to
// one thread, which waits; the server itself runs on the network's loop.

#include "net/tcp.h"
#include "worker/loop_computer.h"
#include "worker/server.h"
#include "worker/slice_store.h"

namespace linkcpp::worker {

class Serving {
  public:
    /// `address`: port 0 picks a free one, which is kept from then on. `settings`: of every server. `network` outlives it.
    Serving(net::TcpNetwork& network, std::shared_ptr<moe::Device> device, net::Address address,
            ServerSettings settings);
    ~Serving();  ///< stop()
    Serving(const Serving&) = delete;
    Serving& operator=(const Serving&) = delete;

    /// Serves exactly these files; none: nothing. What is new is checked, loaded and tested first.
    /// Errors: those of SliceFile::open(), load_engine() and self_test(), unavailable (the address is taken). Then what
    /// was served before and is still wanted is served on.
    Status replace(const std::vector<std::string>& paths);
    /// Finishes what is in flight, then serves nothing.
    void stop();

    /// Where it serves; port 0 before the first time.
    const net::Address& address() const { return address_; }
    bool serving() const { return server_ != nullptr; }
    uint32_t pairs_waiting();

  private:
    Status start();
    Result<std::unique_ptr<HeldSlice>> load(const std::string& path) const;

    net::TcpNetwork& network_;
    const std::shared_ptr<moe::Device> device_;
    net::Address address_;
    const ServerSettings settings_;
    LoopComputer computer_;
    std::vector<std::unique_ptr<HeldSlice>> slices_;
    std::vector<ServedSlice> served_;  // what server_ refers to
    std::unique_ptr<Server> server_;   // made, used and destroyed on the loop
};

}  // namespace linkcpp::worker
