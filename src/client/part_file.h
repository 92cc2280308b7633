#pragma once
// A file while it is being pulled: "<path>.part", and beside it "<path>.part.journal", which says what of each unit has arrived.
// The journal is a hint: what it claims is hashed again when a pull resumes, so neither a crash nor a power failure can
// smuggle in a byte that was not checked. Members may be called from several threads, for different units.

#include "client/pull_plan.h"
#include "moe/output_file.h"

#include <mutex>

namespace linkcpp::client {

class PartFile {
  public:
    /// Opens or begins the partial file, and hashes what is there. `cancelled`: ends early. Errors: as
    /// OutputFile::resume(); io.
    static Result<std::unique_ptr<PartFile>> open(const PullFile& plan, const moe::Progress& checking,
                                                  const std::atomic<bool>& cancelled);
    ~PartFile();
    PartFile(const PartFile&) = delete;
    PartFile& operator=(const PartFile&) = delete;

    const PullFile& plan() const { return plan_; }
    /// Bytes of the unit that are here; all of them only when they were right.
    uint64_t have(size_t unit) const { return states_[unit].have; }
    bool is_done(size_t unit) const { return states_[unit].done; }

    /// The next bytes of a unit, at most what it lacks. False: with them the unit is whole, and wrong; it begins again.
    Result<bool> add(size_t unit, ByteSpan bytes);
    /// Remembers how much of a unit there is, when a transfer ends in the middle of it.
    void note(size_t unit);

    /// Writes what need not be fetched and makes all durable. Every unit is done.
    Status complete();
    /// Gives the file its name and removes the journal.
    Status publish();

  private:
    struct State {
        uint64_t have = 0, noted = 0;
        bool done = false;
        Sha256 hash;
    };

    PartFile(const PullFile& plan, moe::OutputFile out);
    std::string journal_path() const { return plan_.path + ".part.journal"; }
    Status open_journal(const moe::Progress& checking, const std::atomic<bool>& cancelled);
    Status take_over(const std::vector<uint64_t>& claimed, const moe::Progress& checking,
                     const std::atomic<bool>& cancelled);

    const PullFile& plan_;
    moe::OutputFile out_;
    std::vector<State> states_;
    std::mutex journal_mutex_;
    int journal_ = -1;  // written under journal_mutex_
};

}  // namespace linkcpp::client
