#include "client/receipt_book.h"

#include "base/log.h"
#include "base/threads.h"

#include <algorithm>
#include <ctime>

namespace linkcpp::client {

namespace {

using namespace std::chrono_literals;

constexpr Duration write_every = 2s, first_pause = 1s, longest_pause = 30s;
constexpr size_t max_batch = 50;  // a hub takes bodies of 64 kB

}  // namespace

ReceiptBook::ReceiptBook(HubAccount& account, std::function<std::vector<EarnedRows>()> gather)
    : account_(account), gather_(std::move(gather)), journal_(account.folder(), account.key()),
      api_(account.api(&stop_)), thread_(start_thread("lc-receipts", [this] { run(); })) {}

ReceiptBook::~ReceiptBook() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = finishing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void ReceiptBook::add(std::vector<EarnedRows> rows) {
    const std::lock_guard lock(mutex_);
    if (open_.empty()) open_since_ = std::time(nullptr);
    for (EarnedRows& entry : rows)
        open_[{std::move(entry.node), std::move(entry.slice)}] += entry.rows;
}

void ReceiptBook::run() {
    Duration pause = first_pause;
    Instant next_post{};
    for (bool last = false; !last;) {
        {
            std::unique_lock lock(mutex_);
            // Receipts of an earlier process go out at once.
            if (next_post.count() != 0) changed_.wait_for(lock, write_every, [this] { return finishing_; });
            last = finishing_;
        }
        if (!last) add(gather_());
        write();
        if (!last && clock_.now() < next_post) continue;
        const Status posted = post();
        pause = posted.ok() ? first_pause : std::min(2 * pause, longest_pause);
        next_post = clock_.now() + (posted.ok() ? Duration::zero() : pause);
        if (stop_) break;
        if (!posted.ok() && !std::exchange(away_, true))
            log_warning("{}; receipts are kept in {} until it takes them", posted.message(), account_.folder());
        if (posted.ok()) away_ = false;
    }
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_all();
}

void ReceiptBook::write() {
    std::map<std::pair<std::string, Segment>, uint64_t> rows;
    int64_t since = 0;
    {
        const std::lock_guard lock(mutex_);
        rows.swap(open_);
        since = open_since_;
    }
    if (rows.empty()) return;
    std::vector<Receipt> receipts;
    const int64_t now = std::max<int64_t>(since, std::time(nullptr));
    for (const auto& [what, count] : rows) {
        const auto& [node, slice] = what;
        receipts.push_back({account_.node(), account_.node(), node, slice.model, slice.layer_begin, slice.layer_end,
                            slice.expert_begin, slice.expert_end, count, since, now, 0});
    }
    const Status written = journal_.add(std::move(receipts));
    const std::lock_guard lock(mutex_);
    if (!written.ok()) {
        log_warning("receipts cannot be kept, they are tried again: {}", written.message());
        for (const auto& [what, count] : rows)
            open_[what] += count;
        open_since_ = since;
        return;
    }
    report_.n_written += rows.size();
    for (const auto& [what, count] : rows)
        report_.rows_by_node[what.first] += count;
}

/// Ok when nothing is left that the hub would take now.
Status ReceiptBook::post() {
    while (!stop_) {
        const auto batch = journal_.waiting(max_batch);
        if (!batch.ok()) return batch.status();
        if (batch->empty()) return {};
        const auto answers = account_.ask(api_, [&] { return api_.post_receipts(*batch); });
        if (!answers.ok()) return answers.status();
        std::vector<std::string> done;
        for (size_t i = 0; i < batch->size(); ++i) {
            note((*batch)[i], (*answers)[i]);
            if ((*answers)[i].fate != ReceiptAnswer::Fate::no_credit) done.push_back((*batch)[i].receipt.id());
        }
        if (!done.empty()) LINKCPP_TRY(journal_.answered(done));
        if (done.size() < batch->size())
            return {Code::exhausted, account_.url().str() + ": this backbone has no credit left"};
    }
    return {Code::unavailable, "stopped"};
}

void ReceiptBook::note(const SignedReceipt& signed_receipt, const ReceiptAnswer& answer) {
    const Receipt& receipt = signed_receipt.receipt;
    const std::lock_guard lock(mutex_);
    switch (answer.fate) {
        case ReceiptAnswer::Fate::recorded:
            report_.n_recorded += 1;
            report_.paid_by_node[receipt.node] += receipt.rows;
            break;
        case ReceiptAnswer::Fate::no_credit:
            if (!std::exchange(no_credit_told_, true)) {
                log_warning("the nodes that compute are not paid yet: this backbone's credit at {} is used up. The "
                            "operator can give it more: linkcpp-hub --grant {}=CREDITS",
                            account_.url().str(), account_.node());
            }
            break;
        case ReceiptAnswer::Fate::refused:
            report_.n_refused += 1;
            log_warning("the hub refuses a receipt of {} rows for node {}: {}", receipt.rows, receipt.node,
                        answer.reason);
            break;
    }
}

ReceiptReport ReceiptBook::finish(Duration limit) {
    bool in_time = false;
    {
        std::unique_lock lock(mutex_);
        finishing_ = true;
        changed_.notify_all();
        in_time = changed_.wait_for(lock, limit, [this] { return finished_; });
        stop_ = true;
    }
    if (thread_.joinable()) thread_.join();
    if (!in_time) log_debug("the hub did not take all receipts in time");
    const auto waiting = journal_.n_waiting();
    const std::lock_guard lock(mutex_);
    report_.n_waiting = waiting.ok() ? *waiting : 0;
    return report_;
}

}  // namespace linkcpp::client
