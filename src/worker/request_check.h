#pragma once
// What a worker checks before it believes a request: programs and COMPUTE against the slices it holds. Pure decisions about
// one connection's session; no I/O. Belongs to one thread.

#include "moe/engine.h"
#include "wire/messages.h"

#include <map>
#include <memory>
#include <optional>

namespace linkcpp::worker {

/// A slice as it is offered to the other end.
struct ServedSlice {
    wire::SliceOffer offer;
    moe::Engine* engine = nullptr;  ///< outlives the server
    int n_expert_used = 0;          ///< experts per token of the model, for caps
};

/// What a request may cost here, derived from the slices: a prompt of 4096 tokens (llama.cpp's largest usual batch).
struct Caps {
    uint32_t max_payload = 0;  ///< bytes of a COMPUTE
    uint64_t max_pairs = 0;
};
Caps caps_for(const std::vector<ServedSlice>& slices);

/// A request that passed: everything a ComputeJob needs but the message itself.
struct Accepted {
    const ServedSlice* slice = nullptr;
    std::shared_ptr<const moe::Program> program;
    uint32_t n_out = 0;
    bool at_once = false;        ///< it may be computed in one go, as far as memory goes
    uint64_t rows_bytes = 0;     ///< rows that are held until they are summed; within the caps by max_pairs
    uint64_t scratch_bytes = 0;  ///< the program's values, for as many pairs as are computed at once
};

class RequestCheck {
  public:
    /// `slices` outlives this object. `max_bytes_at_once`: a request is computed in one go while its values take no more, or
    /// no more than in parts.
    RequestCheck(const std::vector<ServedSlice>& slices, Caps caps, uint64_t max_bytes_at_once)
        : slices_(slices), caps_(caps), max_bytes_at_once_(max_bytes_at_once) {}

    /// Decodes and remembers a program. A refusal says why not; then the number means nothing any more.
    std::optional<wire::Refuse> add_program(const wire::FrameHeader& header, const wire::ProgramFrame& frame);
    /// `peer_max_payload`: a row must fit into what the other end accepts.
    std::optional<wire::Refuse> check_compute(const wire::FrameHeader& header, const wire::Compute& compute,
                                              uint32_t peer_max_payload, Accepted& accepted) const;

    /// Memory that the programs of this session take.
    uint64_t held_bytes() const { return held_bytes_; }

  private:
    struct Entry {
        std::shared_ptr<const moe::Program> program;
        std::map<uint32_t, moe::ProgramShape> layers;
        uint64_t bytes() const;
    };
    void forget(const std::pair<wire::SliceId, uint32_t>& key);
    const ServedSlice* find(const wire::SliceId& id) const;

    const std::vector<ServedSlice>& slices_;
    Caps caps_;
    uint64_t max_bytes_at_once_;
    std::map<std::pair<wire::SliceId, uint32_t>, Entry> programs_;
    uint64_t held_bytes_ = 0;
};

}  // namespace linkcpp::worker
