#pragma once
// Between a model's dispatcher and its hub: workers that the hub names go to the dispatcher, as they come and go; rows that the
// dispatcher accepted become receipts. Neither is on the path of a token.

#include "backend/config.h"
#include "client/placement_watch.h"
#include "client/receipt_book.h"
#include "dispatch/dispatcher.h"

namespace linkcpp::backend {

/// Which model is looked for.
struct SwarmModel {
    std::string fingerprint;    ///< "": not known
    std::string numeric_class;  ///< of this machine
};

class SwarmLink {
  public:
    /// Waits until the hub has said who the workers are, or is known to be away. `settings.hub.url` is set. Errors:
    /// invalid_argument (nothing says which model), those of HubAccount and PlacementWatch.
    static Result<std::unique_ptr<SwarmLink>> open(const ModelSettings& settings, const SwarmModel& model,
                                                   const Config& config);

    /// Those of the configuration and those that the hub names, now.
    std::vector<net::Address> workers() const;
    /// From now on the dispatcher is told about changes. It outlives this object, or finish().
    void attach(dispatch::Dispatcher& dispatcher);
    /// Ends both, adds what became of the receipts to `totals`. Takes a few seconds when the hub does not answer.
    void finish(Totals& totals);

  private:
    explicit SwarmLink(std::vector<net::Address> fixed) : fixed_(std::move(fixed)) {}
    void changed(const std::string& model, const std::map<std::string, std::string>& nodes);
    std::vector<client::EarnedRows> take_rows();

    const std::vector<net::Address> fixed_;
    mutable std::mutex mutex_;
    std::string model_;                         // protected by mutex_, as is everything below
    std::map<std::string, std::string> nodes_;  // address -> node
    dispatch::Dispatcher* dispatcher_ = nullptr;
    // Not protected:
    std::unique_ptr<client::HubAccount> account_;
    std::unique_ptr<client::ReceiptBook> book_;
    std::unique_ptr<client::PlacementWatch> watch_;
};

}  // namespace linkcpp::backend
