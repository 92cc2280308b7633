#pragma once
// Decides whether a worker may compute for this model: every slice it offers must be this model's, digest by digest, and
// where the backbone has the weights itself, a few rows must come out as its own do. Digests of a whole model take a while
// to compute, so the work is done on a thread of its own, "lc-check"; audits have another one, "lc-audit".

#include "backend/config.h"
#include "backend/local_experts.h"
#include "dispatch/admission.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <thread>

namespace linkcpp::backend {

/// Runs tasks one after the other. What waits when it ends is not run.
class TaskThread {
  public:
    explicit TaskThread(const char* name);
    ~TaskThread();
    void add(std::function<void()> task);

  private:
    void run();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> tasks_;  // protected by mutex_
    bool stop_ = false;                        // protected by mutex_
    std::thread thread_;
};

class Admission final : public dispatch::PeerCheck {
  public:
    /// `local` may be null: then there are no canaries. Both must outlive this object. `audits`: answers may be computed
    /// again with local weights.
    Admission(const ModelSource& source, LocalExperts* local, std::string numeric_class, Policy policy, bool audits);

    void admit(const std::string& worker, const wire::Welcome& welcome,
               std::function<void(Result<std::vector<dispatch::Canary>>)> done) override;
    uint64_t progress() const override { return progress_; }
    bool can_audit() const override { return audits_; }
    void audit(dispatch::AuditRequest request, std::function<void(Status)> done) override;

  private:
    Result<std::vector<dispatch::Canary>> decide(const std::string& worker, const wire::Welcome& welcome) const;
    Result<std::vector<dispatch::Canary>> canaries(const wire::SliceOffer& offer, double tolerance) const;
    Status compute_again(const dispatch::AuditRequest& request) const;

    const ModelSource& source_;
    LocalExperts* local_;
    const Policy policy_;
    const bool audits_;
    const std::string numeric_class_;
    mutable std::atomic<uint64_t> progress_{0};
    TaskThread checks_, auditor_;  // last: their tasks use the rest
};

}  // namespace linkcpp::backend
