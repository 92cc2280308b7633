#pragma once
// What must be true of a worker before it is used, decided by the backbone (which knows the model), asked by a Peer.

#include "base/status.h"
#include "dispatch/job.h"
#include "wire/messages.h"

#include <functional>
#include <string>
#include <vector>

namespace linkcpp::dispatch {

/// A few rows that the worker must compute, and the judgement of what came back.
struct Canary {
    wire::SliceId slice{};
    uint32_t layer = 0;
    ProgramCode program;
    std::vector<float> x;                                 ///< [n_in, n_pairs]
    std::vector<uint32_t> expert;                         ///< [n_pairs], from the slice's expert_begin
    std::function<Status(std::span<const float>)> judge;  ///< y: [n_out, n_pairs]; an error refuses the worker
};

class PeerCheck {
  public:
    virtual ~PeerCheck() = default;
    /// Decides about a worker's slices (model, quantisation, digests) and class. `done` gets the canaries to run, or the
    /// reason why the worker is refused; it may be called from any thread, at once or later. Loop thread.
    virtual void admit(const std::string& worker, const wire::Welcome& welcome,
                       std::function<void(Result<std::vector<Canary>>)> done) = 0;
};

}  // namespace linkcpp::dispatch
