#pragma once
// The slices that a worker holds: opened, checked against the memory limit, verified slab by slab, and loaded. A slice that is
// not what it claims to be is never served. After load() the object is immutable.

#include "moe/engine.h"
#include "worker/request_check.h"

namespace linkcpp::worker {

struct HeldSlice {
    moe::SliceFile file;
    std::unique_ptr<moe::Engine> engine;
};

/// Reads, checks and loads the slabs of a slice that is open. Errors: those of SliceFile::read() and Engine::load().
Status load_engine(HeldSlice& slice, std::shared_ptr<moe::Device> device, const moe::Progress& progress = {});
/// As it is offered to backbones. The slice must outlive what is returned.
ServedSlice served_slice(const HeldSlice& slice);

class SliceStore {
  public:
    /// `what`: "loading" and which file. Called from a thread that loads.
    using Progress = std::function<void(const std::string& what, uint64_t done, uint64_t total)>;

    /// `max_memory`: bytes of device memory that the weights may take, 0 = no limit; compared with what is needed before
    /// anything large is read. Errors: those of SliceFile::open(), read() and Engine::load(); exhausted (over the limit:
    /// the message says how much is needed); invalid_argument (the same slice twice, or more than can be offered).
    static Result<SliceStore> load(const std::vector<std::string>& paths, std::shared_ptr<moe::Device> device,
                                   uint64_t max_memory, const Progress& progress = {});

    const std::vector<HeldSlice>& slices() const { return slices_; }
    /// For the server; valid as long as this object.
    std::vector<ServedSlice> served() const;

  private:
    std::vector<HeldSlice> slices_;
};

}  // namespace linkcpp::worker
