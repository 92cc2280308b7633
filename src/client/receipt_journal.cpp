#include "client/receipt_journal.h"

#include "base/descriptor.h"
#include "base/secret.h"
#include "client/swarm_json.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <sys/file.h>
#include <unistd.h>

namespace linkcpp::client {

namespace {

using nlohmann::json;

constexpr size_t tidy_above = 256 << 10;  // bytes, before what was answered is taken out

Status failed(const std::string& path) {
    const int error = errno;
    return {error == ENOSPC || error == EDQUOT ? Code::exhausted : Code::io, path + ": " + std::strerror(error)};
}

/// The lock of a folder's receipts; it ends with the object.
class Lock {
  public:
    explicit Lock(const std::string& folder) : path_(folder + "/receipts.lock"), file_(path_, O_RDWR | O_CREAT) {}
    Status take() const {
        while (!file_.ok() || flock(file_.get(), LOCK_EX) != 0) {
            if (!file_.ok() || errno != EINTR) return failed(path_);
        }
        return {};
    }

  private:
    const std::string path_;
    const Descriptor file_;
};

bool write_durably(const Descriptor& file, const std::string& text) {
    return write_all(file.get(), bytes_of_text(text)) && fsync(file.get()) == 0;
}

/// A number that stands for no other receipt of this key, even if the journal is lost: later than all before, by the clock.
uint64_t next_sequence(uint64_t last) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::max(last + 1,
                    static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
}

}  // namespace

struct ReceiptJournal::Content {
    std::vector<SignedReceipt> waiting;
    uint64_t last_sequence = 0;
    size_t good_bytes = 0, bytes = 0;  ///< up to the last whole line; of the file
};

Result<ReceiptJournal::Content> ReceiptJournal::read() const {
    Content content;
    std::ifstream file(path(), std::ios::binary);
    if (!file) return content;  // the first time
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (file.bad()) return {Code::io, path() + " cannot be read"};
    content.bytes = text.size();
    std::map<std::string, SignedReceipt> waiting;
    std::vector<std::string> order;
    for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
        content.good_bytes = end + 1;
        const json line =
            json::parse(text.begin() + static_cast<long>(begin), text.begin() + static_cast<long>(end), nullptr, false);
        try {
            if (line.contains("receipt")) {
                SignedReceipt receipt = receipt_from(line.at("receipt"));
                content.last_sequence = std::max(content.last_sequence, receipt.receipt.sequence);
                order.push_back(receipt.receipt.id());
                waiting.emplace(order.back(), std::move(receipt));
            } else if (line.contains("answered")) {
                waiting.erase(line.at("answered").get<std::string>());
            } else {
                content.last_sequence = std::max(content.last_sequence, line.at("sequence").get<uint64_t>());
            }
        } catch (const json::exception&) {
            continue;  // torn by a crash: it was never sent
        }
    }
    for (const std::string& id : order) {
        if (auto receipt = waiting.extract(id)) content.waiting.push_back(std::move(receipt.mapped()));
    }
    return content;
}

Status ReceiptJournal::append(const std::string& lines, size_t good_bytes) const {
    const Descriptor file(path(), O_WRONLY | O_CREAT | O_APPEND);
    if (!file.ok() || ftruncate(file.get(), static_cast<off_t>(good_bytes)) != 0) return failed(path());
    if (write_durably(file, lines)) return {};
    const Status status = failed(path());
    // Half a line would do no harm, but a whole one that the caller believes not to be there would.
    if (ftruncate(file.get(), static_cast<off_t>(good_bytes)) != 0) return status.in("and it cannot be undone");
    return status;
}

Status ReceiptJournal::rewrite(const Content& content) const {
    std::string text = json{{"sequence", content.last_sequence}}.dump() + "\n";
    for (const SignedReceipt& receipt : content.waiting)
        text += json{{"receipt", to_json(receipt)}}.dump() + "\n";
    const std::string fresh = path() + ".new";
    {
        const Descriptor file(fresh, O_WRONLY | O_CREAT | O_TRUNC);
        if (!file.ok() || !write_durably(file, text)) return failed(fresh);
    }
    if (rename(fresh.c_str(), path().c_str()) != 0) return failed(path());
    const Descriptor folder(folder_, O_RDONLY | O_DIRECTORY);
    return folder.ok() && fsync(folder.get()) == 0 ? Status() : failed(folder_);
}

Status ReceiptJournal::add(std::vector<Receipt> receipts) {
    const Lock lock(folder_);
    LINKCPP_TRY(lock.take());
    auto content = read();
    if (!content.ok()) return content.status();
    std::string lines;
    uint64_t last = content->last_sequence;
    for (Receipt& receipt : receipts) {
        receipt.sequence = last = next_sequence(last);
        const SignedReceipt signed_receipt{receipt, key_.sign(receipt.bytes())};
        lines += json{{"receipt", to_json(signed_receipt)}}.dump() + "\n";
    }
    return append(lines, content->good_bytes);
}

Result<std::vector<SignedReceipt>> ReceiptJournal::waiting(size_t limit) {
    const Lock lock(folder_);
    LINKCPP_TRY(lock.take());
    auto content = read();
    if (!content.ok()) return content.status();
    if (content->waiting.size() > limit) content->waiting.resize(limit);
    return std::move(content->waiting);
}

Result<size_t> ReceiptJournal::n_waiting() {
    const Lock lock(folder_);
    LINKCPP_TRY(lock.take());
    const auto content = read();
    if (!content.ok()) return content.status();
    return content->waiting.size();
}

Status ReceiptJournal::answered(const std::vector<std::string>& ids) {
    const Lock lock(folder_);
    LINKCPP_TRY(lock.take());
    auto content = read();
    if (!content.ok()) return content.status();
    if (content->bytes > tidy_above) {
        std::erase_if(content->waiting, [&](const SignedReceipt& receipt) {
            return std::find(ids.begin(), ids.end(), receipt.receipt.id()) != ids.end();
        });
        return rewrite(*content);
    }
    std::string lines;
    for (const std::string& id : ids)
        lines += json{{"answered", id}}.dump() + "\n";
    return append(lines, content->good_bytes);
}

}  // namespace linkcpp::client
