#pragma once
// The receipts of a backbone on its disk, from before they are sent until the hub has answered. A file of lines that only grows,
// written through to the disk; what was torn off by a crash is left out. Several processes may use one folder at once: every
// call holds the folder's lock. Any thread.

#include "client/hub_api.h"

namespace linkcpp::client {

class ReceiptJournal {
  public:
    /// `folder` is there; `key` outlives the journal.
    ReceiptJournal(std::string folder, const SigningKey& key) : folder_(std::move(folder)), key_(key) {}

    /// Gives each receipt its sequence number, signs it and keeps it. Errors: io, exhausted (disk full); then none is kept.
    Status add(std::vector<Receipt> receipts);
    /// What waits for an answer, the oldest first, at most `limit`.
    Result<std::vector<SignedReceipt>> waiting(size_t limit);
    Result<size_t> n_waiting();
    /// These were answered for good: they need not be kept. By id.
    Status answered(const std::vector<std::string>& ids);

  private:
    struct Content;
    Result<Content> read() const;
    Status append(const std::string& lines, size_t good_bytes) const;
    Status rewrite(const Content& content) const;
    std::string path() const { return folder_ + "/receipts"; }

    const std::string folder_;
    const SigningKey& key_;
};

}  // namespace linkcpp::client
