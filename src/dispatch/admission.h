#pragma once
// What must be true of a worker before it is used, and of its results while it is, decided by the backbone (which knows
// the model), asked by Peer and Dispatcher.

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

/// An answer to be computed again.
struct AuditRequest {
    uint32_t layer = 0;
    std::shared_ptr<const ProgramCode> program;
    wire::Compute compute;  ///< experts counted in the whole layer
    Floats rows;            ///< what the worker answered: [n_out, n_rows_out]
    double tolerance = 0;   ///< of the worker's numeric class, see compare.h
};

class PeerCheck {
  public:
    virtual ~PeerCheck() = default;
    /// Decides about a worker's slices (model, quantisation, digests) and class. `done` gets the canaries to run, or the
    /// reason why the worker is refused; it may be called from any thread, at once or later. On the loop.
    virtual void admit(const std::string& worker, const wire::Welcome& welcome,
                       std::function<void(Result<std::vector<Canary>>)> done) = 0;
    /// Grows while an admission gets on: digests of a large model take minutes. Any thread.
    virtual uint64_t progress() const { return 0; }

    /// True when audit() has weights to compare with. Any thread.
    virtual bool can_audit() const { return false; }
    /// Computes an answer again. `done` gets mismatch or corrupt when it is wrong, any other error when that could not be
    /// found out; it may be called from any thread, at once or later. On the loop.
    virtual void audit(AuditRequest, std::function<void(Status)> done) {
        done({Code::unsupported, "there are no weights to compare with"});
    }
};

}  // namespace linkcpp::dispatch
