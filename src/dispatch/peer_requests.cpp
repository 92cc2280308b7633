// The requests of a peer: sending within the credit, collecting tiles, noticing that nothing moves.

#include "base/log.h"
#include "dispatch/peer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace linkcpp::dispatch {

namespace {

/// Small answers of ours that pile up at a worker that does not read.
constexpr size_t max_unread = 1 << 20;
/// Rows of a finished request whose memory the next one gets: fresh pages are slow.
constexpr size_t max_spare = 16 << 20;

}  // namespace

void Peer::send(PeerRequest request) { transmit(std::move(request), nullptr); }

void Peer::forget(uint64_t id) {
    pending_.erase(id);
    std::erase_if(waiting_, [id](const auto& entry) { return entry.first.id == id; });
}

void Peer::lost_race(uint64_t id) {
    const auto found = pending_.find(id);
    if (found != pending_.end()) note_round_trip(found->second);
    forget(id);
}

void Peer::note_round_trip(const Pending& pending) {
    const Duration took = network_.loop().now() - pending.sent;
    // The time of a long prompt says nothing about how long silence is normal.
    if (pending.n_pairs <= settings_.small_request) round_trips_.add(took);
    by_size_[std::bit_width(pending.n_pairs)].add(took);
}

void Peer::transmit(PeerRequest request, std::function<void(Result<Floats>)> canary) {
    if (waiting_.empty()) waiting_since_ = network_.loop().now();
    waiting_.emplace_back(std::move(request), std::move(canary));
    flush_waiting();
}

void Peer::send_frame(Bytes frame) {
    give_credit();
    sent_total_ += frame.size();
    link_->send(std::move(frame));
}

void Peer::give_credit() {
    if (owed_credit_ == 0) return;
    Bytes frame = wire::encode(wire::Credit{std::exchange(owed_credit_, 0)});
    sent_total_ += frame.size();
    link_->send(std::move(frame));
}

void Peer::flush_waiting() {
    // A worker that does not read gets nothing more: what waits here is what jobs wait for, and ends with them.
    while (!waiting_.empty() && link_ != nullptr && link_->unsent() <= settings_.max_unsent) {
        PeerRequest& request = waiting_.front().first;
        const uint64_t bytes = request.frame.payload_bytes();
        if (bytes > session_->peer_max_payload()) {
            auto [failed, canary] = std::move(waiting_.front());
            waiting_.pop_front();
            const Status status(
                Code::exhausted,
                fmt::format("a request of {} bytes is over the worker's cap of {}; decode in smaller batches (-ub)",
                            bytes, session_->peer_max_payload()));
            if (canary) return canary(status);
            observer_.request_failed(*this, failed.id, status);
            continue;
        }
        if (!credit_.spend(bytes)) return;
        const uint32_t program = program_number(request);
        wire::FrameHeader header;
        header.version = welcome_.version;
        header.request = request.id;
        header.attempt = request.attempt;
        header.slice = welcome_.slices[request.offer].slice;
        header.layer = request.layer;
        Pending pending;
        pending.n_pairs = request.frame.n_pairs();
        pending.n_rows_out = request.frame.n_rows_out();
        Bytes frame = std::move(request.frame).seal(header, program);
        stats_.bytes_out += frame.size();
        stats_.requests += 1;
        pending.rows = std::move(spare_rows_);
        pending.rows.resize(static_cast<size_t>(pending.n_rows_out) * request.program->n_out);
        pending.bytes = frame.size() + pending.rows.size() * sizeof(float);
        pending.sent_end = sent_total_ + frame.size();
        pending.sent = pending.progress = network_.loop().now();
        pending.request = std::move(request);
        pending.canary = std::move(waiting_.front().second);
        waiting_.pop_front();
        if (pending_.empty()) last_heard_ = pending.sent;  // silence while nothing was asked means nothing
        pending_.emplace(pending.request.id, std::move(pending));
        send_frame(std::move(frame));
        request_end_ = sent_total_;
    }
}

uint32_t Peer::program_number(const PeerRequest& request) {
    const auto key = std::make_tuple(request.offer, request.layer,
                                     std::string(request.program->code.begin(), request.program->code.end()));
    const auto found = programs_.find(key);
    if (found != programs_.end()) return found->second;
    const auto number = static_cast<uint32_t>(programs_.size() + 1);
    programs_.emplace(key, number);
    wire::FrameHeader header;
    header.version = welcome_.version;
    header.request = request.id;
    header.slice = welcome_.slices[request.offer].slice;
    header.layer = request.layer;
    Bytes frame =
        wire::encode(header, wire::ProgramFrame{number, request.layer, request.layer + 1, request.program->code});
    stats_.bytes_out += frame.size();
    send_frame(std::move(frame));
    return number;
}

void Peer::on_result(const wire::FrameHeader& header, const wire::ResultTile& tile) {
    if (link_ == nullptr) return;  // lost by an earlier frame of the same read
    const auto found = pending_.find(header.request);
    // What the frame took is given back, whether it is still wanted or not. While nothing more is to come nobody waits for
    // it, so it goes with the next request: a frame of its own would wake the worker for nothing.
    owed_credit_ += session_->payload_bytes();
    const bool nothing_to_come =
        found != pending_.end() && pending_.size() == 1 && (header.flags & wire::flag_last_tile) != 0;
    if (!nothing_to_come || owed_credit_ > settings_.result_credit / 4) give_credit();
    if (found == pending_.end()) {  // late: its rows went elsewhere
        // Behind a request that is still on its way our answers wait, and that is not its fault.
        if (std::min<uint64_t>(link_->unsent(), sent_total_ - request_end_) > max_unread)
            lose({Code::corrupt, "it answers what nobody asked, and does not read"}, true);
        return;
    }
    Pending& pending = found->second;
    const PeerRequest& request = pending.request;
    if (header.attempt != request.attempt) return;
    const uint32_t n_out = request.program->n_out;
    const bool last = (header.flags & wire::flag_last_tile) != 0;
    if (header.slice != welcome_.slices[request.offer].slice || header.layer != request.layer || tile.n_out != n_out ||
        header.row_offset != pending.n_rows_in || header.rows > pending.n_rows_out - pending.n_rows_in ||
        last != (pending.n_rows_in + header.rows == pending.n_rows_out)) {
        return lose(
            {Code::corrupt,
             fmt::format("its answer for layer {} is not what was asked: rows {} to {} of {}, width {} instead of {}",
                         request.layer, header.row_offset, header.row_offset + header.rows, pending.n_rows_out,
                         tile.n_out, n_out)},
            true);
    }
    const std::span<float> rows =
        std::span(pending.rows)
            .subspan(static_cast<size_t>(pending.n_rows_in) * n_out, static_cast<size_t>(header.rows) * n_out);
    std::memcpy(rows.data(), tile.rows.data(), tile.rows.size());
    if (!all_finite(rows))
        return lose({Code::corrupt, fmt::format("its answer for layer {} is not finite", request.layer)}, true);
    pending.n_rows_in += header.rows;
    note_progress(network_.loop().now());
    if (!last) return;
    stats_.queued += std::chrono::microseconds(tile.queue_us);
    stats_.computed += std::chrono::microseconds(tile.compute_us);
    Pending complete = std::move(pending);
    pending_.erase(found);
    finish(header.request, std::move(complete));
}

void Peer::finish(uint64_t id, Pending complete) {
    stats_.rows += complete.n_pairs;
    if (complete.canary) {
        stats_.rows -= complete.n_pairs;
        return complete.canary(std::move(complete.rows));
    }
    note_round_trip(complete);
    observer_.request_done(*this, id, complete.rows);
    if (complete.rows.capacity() * sizeof(float) <= max_spare) spare_rows_ = std::move(complete.rows);
}

void Peer::on_refuse(const wire::FrameHeader& header, const wire::Refuse& refuse) {
    const auto found = pending_.find(header.request);
    if (found == pending_.end() || link_ == nullptr) return;
    Pending refused = std::move(found->second);
    pending_.erase(found);
    stats_.failures += 1;
    const bool busy = refuse.code == wire::RefuseCode::busy || refuse.code == wire::RefuseCode::draining ||
                      refuse.code == wire::RefuseCode::no_time_left;
    const Status status(busy ? Code::unavailable : Code::invalid_argument,
                        fmt::format("it refuses ({}): {}", wire::refuse_code_name(refuse.code), refuse.message));
    if (refused.canary) return refused.canary(status);
    // A worker that does not understand what others of its kind compute is of no use until it is restarted.
    if (!busy) {
        pending_.emplace(header.request, std::move(refused));
        return lose(status, true);
    }
    observer_.request_failed(*this, header.request, status);
}

void Peer::on_credit(const wire::Credit& credit) {
    credit_.grant(credit.bytes);
    waiting_since_ = network_.loop().now();
    flush_waiting();
}

void Peer::on_ping(const wire::Ping& ping) {
    // With so much unsent the worker has other proof that we live.
    if (link_ != nullptr && link_->unsent() <= max_unread)
        send_frame(wire::encode(wire::Pong{ping.nonce, 0, 0, 255, 127}));
}

void Peer::on_pong(const wire::Pong& pong) {
    if (pong.rows_done > rows_done_) note_progress(network_.loop().now());
    rows_done_ = pong.rows_done;
    rows_queued_ = std::min(pong.rows_queued, settings_.max_queued_pairs);
}

void Peer::on_goaway(const wire::GoAway& goaway) {
    if (link_ == nullptr) return;
    const Status reason(Code::unavailable,
                        fmt::format("it is leaving ({}): {}", wire::refuse_code_name(goaway.reason), goaway.message));
    // What is under way is still answered; the connection ends when the worker closes it.
    const bool comes_back = goaway.reason == wire::RefuseCode::draining || goaway.reason == wire::RefuseCode::busy ||
                            goaway.reason == wire::RefuseCode::no_time_left;
    if (state_ != State::ready || !comes_back) return lose(reason, !comes_back);
    draining_ = true;
    trouble_ = reason;
    log_info("worker {}: {}", address_.str(), reason.message());
    observer_.peer_changed(*this);
}

/// Who has received a request of megabytes reads, checks and answers it on the thread that answers pings too.
Duration Peer::stall_after() const {
    uint64_t largest = 0;
    for (const auto& [id, pending] : pending_) {
        if (pending.sent_end <= acknowledged_) largest = std::max(largest, pending.bytes);
    }
    const Duration handling(std::chrono::duration_cast<Duration>(std::chrono::seconds(largest)) /
                            static_cast<int64_t>(settings_.slowest_reader));
    return std::max(settings_.stall_min, 2 * round_trips_.quantile(0.99)) + handling;
}

void Peer::note_progress(Instant now) {
    for (auto& [id, pending] : pending_)
        pending.progress = now;
}

/// While a request is on its way out, the bytes of it that arrive at the other end are a sign of life: pings stand behind
/// them. Other bytes are not: the operating system of a process that hangs acknowledges pings too.
void Peer::note_acknowledged(Instant now) {
    const uint64_t acknowledged = sent_total_ - link_->unacknowledged();
    if (acknowledged <= acknowledged_) return;
    for (auto& [id, pending] : pending_) {
        if (pending.sent_end <= acknowledged_) continue;
        pending.progress = last_heard_ = now;
    }
    if (link_->unsent() > 0) waiting_since_ = now;
    acknowledged_ = acknowledged;
}

void Peer::tick() {
    if (!needs_watching()) return;
    const Instant now = network_.loop().now();
    note_acknowledged(now);
    if (pending_.empty() && !silent_) {  // nothing was asked, so silence means nothing: but something may be missing
        if (!waiting_.empty() && now - waiting_since_ > settings_.compute_min)
            lose({Code::timeout, "it takes no requests: no credit comes back from it"}, true);
        return;
    }
    const Duration silence = now - last_heard_;
    if (silence > settings_.give_up_silent) return lose({Code::timeout, "it has gone silent"}, false);
    if (silence > stall_after() / 3 && now - last_ping_ > stall_after() / 3) {
        last_ping_ = now;
        send_frame(wire::encode(wire::Ping{static_cast<uint64_t>(now.count())}));
    }
    // In admission nobody waits for rows, so there is nothing to take elsewhere: the connection lives or ends.
    if (silence > stall_after() && state_ != State::admission) {
        if (!std::exchange(silent_, true)) warn(fmt::format("does not answer for {:.0f} ms", milliseconds(silence)));
        return fail_all({Code::timeout, fmt::format("no sign of life for {:.0f} ms", milliseconds(silence))});
    }
    // Connected again it would only swallow the next request: it is left alone for a while, as one that lies.
    if (const Status stuck = stuck_request(now); !stuck.ok()) lose(stuck, true);
}

/// A request that takes too long although the worker shows signs of life; ok when there is none.
Status Peer::stuck_request(Instant now) const {
    for (const auto& [id, pending] : pending_) {
        const Duration own = settings_.compute_min + pending.n_pairs * settings_.compute_per_pair;
        const Duration queued = settings_.compute_min + rows_queued_ * settings_.compute_per_pair;
        const Duration bytes(std::chrono::seconds(pending.bytes) / settings_.slowest_link);
        if (now - pending.progress <= std::max(own, queued) && now - pending.sent <= settings_.patience * own + bytes)
            continue;
        return {Code::timeout, fmt::format("it lives, but {} rows did not come in {:.1f} s", pending.n_pairs,
                                           milliseconds(now - pending.sent) / 1000)};
    }
    return {};
}

}  // namespace linkcpp::dispatch
