#pragma once
// The slices of an autonomous worker on disk and in service: DATA/slices/<model>/layers-0-1-experts-128-192.gguf. How a
// slice comes from the hub is given; it comes on a thread of its own ("lc-fetch"), one at a time.

#include "worker/join.h"
#include "worker/serving.h"

#include <atomic>
#include <mutex>
#include <thread>

namespace linkcpp::worker {

/// Fetches a slice to `path`, whole and verified, resuming what an earlier attempt left; on another thread. Tells the bytes
/// that are there in `arrived`, ends early with unavailable when `cancelled` becomes true.
using FetchSlice = std::function<Status(const client::Lease& lease, const std::string& path,
                                        std::atomic<uint64_t>& arrived, const std::atomic<bool>& cancelled)>;

class SliceShelf final : public SlicePort {
  public:
    /// `folder` exists. `advertised`: where backbones reach this worker; empty: where it listens.
    SliceShelf(std::string folder, Serving& serving, std::shared_ptr<moe::Device> device, std::string advertised,
               FetchSlice fetch_slice);
    ~SliceShelf() override;  ///< stop_fetching()

    std::vector<Kept> kept() override;
    void fetch(const client::Lease& lease) override;
    Fetching fetching() override;
    void stop_fetching() override;
    Status serve(const std::vector<client::Segment>& what) override;
    void forget(const client::Segment& what) override;
    std::string address() override;
    std::string numeric_class() override { return device_->numeric_class(); }
    double load() override { return serving_.pairs_waiting(); }

    std::string path_of(const client::Segment& what) const;

  private:
    Result<Kept> look_at(const std::string& path, const client::Segment& what) const;
    void run(const client::Lease& lease);
    void remove_partial_files_but(const std::string& path) const;

    const std::string folder_;
    Serving& serving_;
    const std::shared_ptr<moe::Device> device_;
    const std::string advertised_;
    const FetchSlice fetch_slice_;
    std::thread thread_;
    std::atomic<uint64_t> arrived_ = 0;
    std::atomic<bool> cancelled_ = false;
    std::mutex mutex_;
    std::optional<Result<Kept>> ended_;  // protected by mutex_
};

/// The segment that a file of a shelf is of, by its name; nullopt for other names.
std::optional<client::Segment> segment_of_file(const std::string& model, const std::string& file_name);

}  // namespace linkcpp::worker
