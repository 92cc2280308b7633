#pragma once
// Decides whether a worker may compute for this model: every slice it offers must be this model's, digest by digest, and
// where the backbone has the weights itself, a few rows must come out as its own do. Digests of a whole model take a while
// to compute, so the work is done on a thread of its own, "lc-check".

#include "backend/local_experts.h"
#include "dispatch/admission.h"

#include <condition_variable>
#include <deque>
#include <thread>

namespace linkcpp::backend {

class Admission final : public dispatch::PeerCheck {
  public:
    /// `local` may be null: then there are no canaries. Both must outlive this object.
    Admission(const ModelSource& source, LocalExperts* local, std::string numeric_class);
    ~Admission() override;

    void admit(const std::string& worker, const wire::Welcome& welcome,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override;

  private:
    Result<std::vector<dispatch::Canary>> decide(const std::string& worker, const wire::Welcome& welcome) const;
    Result<std::vector<dispatch::Canary>> canaries(const wire::SliceOffer& offer, bool same_class) const;
    void run();

    const ModelSource& source_;
    LocalExperts* local_;
    const std::string numeric_class_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;  // protected by mutex_; at most one per worker
    bool stop_ = false;                        // protected by mutex_
    std::thread thread_;
};

}  // namespace linkcpp::backend
