#include "client/part_file.h"

#include "base/descriptor.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace linkcpp::client {

namespace {

constexpr std::string_view magic = "linkcpp pull 1\n";
constexpr size_t head_bytes = 15 + 32, record_bytes = 12;
/// A unit that is larger is noted in the journal this often.
constexpr uint64_t note_every = 1 << 20;
constexpr size_t piece_bytes = 1 << 20;

Bytes journal_head(const PullFile& plan) {
    ByteWriter out;
    out.raw({reinterpret_cast<const uint8_t*>(magic.data()), magic.size()});
    out.raw(plan.digest().bytes);
    return out.take();
}

Bytes read_whole(int fd) {
    Bytes bytes, piece(piece_bytes);
    for (ssize_t n; (n = ::read(fd, piece.data(), piece.size())) != 0;) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break;
        bytes.insert(bytes.end(), piece.begin(), piece.begin() + n);
    }
    return bytes;
}

/// What the journal says of each unit; nothing when it is another plan's. A record that was cut off is none.
std::vector<uint64_t> claims(const PullFile& plan, const Bytes& journal) {
    std::vector<uint64_t> claimed(plan.units.size(), 0);
    const Bytes head = journal_head(plan);
    if (journal.size() < head.size() || !std::equal(head.begin(), head.end(), journal.begin())) return claimed;
    ByteReader in(ByteSpan(journal).subspan(head.size()));
    while (in.left() >= record_bytes) {
        const uint32_t unit = in.u32();
        const uint64_t have = in.u64();
        if (unit < claimed.size() && have <= plan.units[unit].bytes) claimed[unit] = have;
    }
    return claimed;
}

}  // namespace

PartFile::PartFile(const PullFile& plan, moe::OutputFile out)
    : plan_(plan), out_(std::move(out)), states_(plan.units.size()) {}

PartFile::~PartFile() {
    if (journal_ >= 0) close(journal_);
}

Result<std::unique_ptr<PartFile>> PartFile::open(const PullFile& plan, const moe::Progress& checking,
                                                 const std::atomic<bool>& cancelled) {
    auto out = moe::OutputFile::resume(plan.path, plan.n_bytes_fetched());
    if (!out.ok()) return out.status();
    std::unique_ptr<PartFile> file(new PartFile(plan, std::move(*out)));
    LINKCPP_TRY(file->open_journal(checking, cancelled));
    return file;
}

Status PartFile::open_journal(const moe::Progress& checking, const std::atomic<bool>& cancelled) {
    const std::string path = journal_path();
    journal_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_APPEND, 0666);
    if (journal_ < 0) return {Code::io, path + ": cannot be created: " + std::strerror(errno)};
    const std::vector<uint64_t> claimed = claims(plan_, read_whole(journal_));
    const bool any = std::any_of(claimed.begin(), claimed.end(), [](uint64_t have) { return have > 0; });
    // Bytes of another plan must not shine through where this one has zeros.
    if (!any) LINKCPP_TRY(out_.resize(0));
    LINKCPP_TRY(out_.resize(plan_.bytes));
    if (ftruncate(journal_, 0) != 0 || !write_all(journal_, journal_head(plan_)))
        return {Code::io, path + ": cannot be written: " + std::strerror(errno)};
    return any ? take_over(claimed, checking, cancelled) : Status();
}

Status PartFile::take_over(const std::vector<uint64_t>& claimed, const moe::Progress& checking,
                           const std::atomic<bool>& cancelled) {
    uint64_t done = 0, total = 0;
    for (const uint64_t have : claimed)
        total += have;
    Bytes buffer(piece_bytes);
    for (size_t i = 0; i < claimed.size(); ++i) {
        const PullUnit& unit = plan_.units[i];
        State& state = states_[i];
        while (state.have < claimed[i]) {
            if (cancelled) return {Code::unavailable, "interrupted; what has arrived is kept"};
            const std::span<uint8_t> piece(
                buffer.data(), static_cast<size_t>(std::min<uint64_t>(claimed[i] - state.have, buffer.size())));
            LINKCPP_TRY(out_.read_at(unit.offset + state.have, piece));
            state.hash.update(piece);
            state.have += piece.size();
            done += piece.size();
            if (checking) checking(done, total);
        }
        if (state.have == unit.bytes) {
            state.done = state.hash.finish() == unit.digest;
            if (!state.done) state = State();
        }
        if (state.have > 0) note(i);
    }
    return {};
}

Result<bool> PartFile::add(size_t index, ByteSpan bytes) {
    const PullUnit& unit = plan_.units[index];
    State& state = states_[index];
    LINKCPP_TRY(out_.write_at(unit.offset + state.have, bytes));
    state.hash.update(bytes);
    state.have += bytes.size();
    if (state.have == unit.bytes) {
        state.done = state.hash.finish() == unit.digest;
        if (!state.done) {
            state = State();
            note(index);
            return false;
        }
        note(index);
    } else if (state.have - state.noted >= note_every) {
        note(index);
    }
    return true;
}

void PartFile::note(size_t index) {
    State& state = states_[index];
    state.noted = state.have;
    ByteWriter out;
    out.u32(static_cast<uint32_t>(index));
    out.u64(state.have);
    const std::lock_guard lock(journal_mutex_);
    write_all(journal_, out.bytes());  // a hint that is lost costs a transfer, nothing else
}

Status PartFile::complete() {
    for (const auto& [offset, bytes] : plan_.local)
        LINKCPP_TRY(out_.write_at(offset, bytes));
    return out_.sync();
}

Status PartFile::publish() {
    LINKCPP_TRY(out_.publish());
    unlink(journal_path().c_str());
    return {};
}

}  // namespace linkcpp::client
