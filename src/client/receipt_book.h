#pragma once
// What a backbone owes to the nodes that computed for it: gathers the rows, writes a receipt per node and slice every few
// seconds into the journal, and gives the receipts to the hub, again and again until it has answered. "lc-receipts" is its
// thread. Rows that were not written yet are lost when the process is killed; what is written is posted in the end, by a
// later process if need be.

#include "client/hub_account.h"
#include "client/receipt_journal.h"

#include <condition_variable>
#include <thread>

namespace linkcpp::client {

struct EarnedRows {
    std::string node;
    Segment slice;
    uint64_t rows = 0;
};

/// Since the book was opened.
struct ReceiptReport {
    std::map<std::string, uint64_t> rows_by_node;  ///< that receipts were written for
    std::map<std::string, uint64_t> paid_by_node;  ///< of those, recorded by the hub
    size_t n_written = 0, n_recorded = 0, n_refused = 0;
    size_t n_waiting = 0;  ///< in the journal now, from earlier times too
};

class ReceiptBook {
  public:
    /// `account` outlives it. `gather` gives the rows since its last call; it is called on the book's thread.
    ReceiptBook(HubAccount& account, std::function<std::vector<EarnedRows>()> gather);
    ~ReceiptBook();  ///< what was not written is lost, see finish()

    /// Notes rows now, besides what `gather` gives. Any thread.
    void add(std::vector<EarnedRows> rows);
    /// Writes everything, and posts it if the hub is there and answers within `limit`. `gather` is not called any more.
    ReceiptReport finish(Duration limit);

  private:
    void run();
    void write();
    Status post();
    void note(const SignedReceipt& receipt, const ReceiptAnswer& answer);

    HubAccount& account_;
    const std::function<std::vector<EarnedRows>()> gather_;
    ReceiptJournal journal_;
    const SteadyClock clock_;
    std::atomic<bool> stop_{false};  // calls to the hub end
    HubApi api_;                     // of the thread
    bool away_ = false, no_credit_told_ = false;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::pair<std::string, Segment>, uint64_t> open_;  // protected by mutex_, as is everything below
    int64_t open_since_ = 0;                                    // seconds since 1970
    bool finishing_ = false, finished_ = false;
    ReceiptReport report_;
    std::thread thread_;  // last: it uses the rest
};

}  // namespace linkcpp::client
