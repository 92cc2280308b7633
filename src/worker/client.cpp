#include "worker/client.h"

#include "base/log.h"
#include "worker/server.h"

#include <algorithm>
#include <fmt/format.h>
#include <new>

namespace linkcpp::worker {

namespace {

/// A tile goes to the link only when no more than this is left there, so that a PONG waits for one tile at most.
constexpr size_t small_rest = 64 * 1024;
/// A connection that ends is not kept, with the memory that it sends from, for the rest of a larger result.
constexpr size_t largest_kept_result = 256 * 1024;
/// Answers (PONG, REFUSE, CREDIT) that pile up at a peer that asks without listening; then it is not read any more.
constexpr size_t max_unread_answers = 1 << 20;

/// What a peer has to reach to keep its connection: a frame in general; frames and results when memory is short.
constexpr double slowest_rate = 128 * 1024, slowest_rate_under_pressure = 1 << 20;

Duration time_for(uint64_t bytes, double bytes_per_second) {
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second));
}

uint32_t clamped_us(Duration duration) { return static_cast<uint32_t>(std::clamp(microseconds(duration), 0.0, 4e9)); }

}  // namespace

Client::Client(Server& server, uint64_t id, std::unique_ptr<net::Link> link)
    : server_(server), id_(id), link_(std::move(link)), session_(wire::Side::worker, server.caps_.max_payload),
      check_(server.slices_, server.caps_, server.settings_.max_peer_bytes * 3 / 8),
      heard_(server.network_.loop().now()), bytes_moved_(heard_), tiles_moved_(heard_), connected_(heard_),
      paused_at_(heard_) {
    link_->on_bytes = [this](ByteSpan bytes) { on_bytes(bytes); };
    link_->room = [this] { return session_.room(); };
    link_->on_drained = [this] { on_drained(); };
    link_->on_closed = [this](const Status& status) {
        log_debug("{}", status.message());
        server_.forget(id_);
    };
}

Client::~Client() = default;

// --- receiving -------------------------------------------------------------------------------------------------------

void Client::on_bytes(ByteSpan bytes) {
    heard_ = server_.network_.loop().now();
    pinged_ = false;
    const uint64_t n_frames = session_.n_frames();
    Status status;
    try {
        status = session_.feed(bytes, *this);
    } catch (const std::bad_alloc&) {
        status = {Code::exhausted, "the worker has no memory left for this request"};
    }
    if (!status.ok()) return server_.end(id_, status);
    note_frame(n_frames);
    if (link_->unsent() > max_unread_answers + tile_bytes_) pause_reading(paused_, true);
    server_.schedule();
    server_.balance();
}

void Client::note_frame(uint64_t n_frames_before) {
    if (session_.reader().unfinished() == 0) {
        frame_begun_.reset();
    } else if (!frame_begun_ || session_.n_frames() != n_frames_before) {
        frame_begun_ = heard_;
    }
}

/// `reason`: paused_ or held_up_. Time in which nothing is read is not the peer's.
void Client::pause_reading(bool& reason, bool yes) {
    if (reason == yes) return;
    const bool was_reading = !paused_ && !held_up_;
    reason = yes;
    const bool reading = !paused_ && !held_up_;
    if (reading == was_reading) return;
    const Instant now = server_.network_.loop().now();
    if (reading) {
        if (frame_begun_) *frame_begun_ += now - paused_at_;
        heard_ = now;
    }
    paused_at_ = now;
    link_->set_reading(reading);
}

void Client::hold_up(bool yes) { pause_reading(held_up_, yes); }

void Client::on_drained() {
    tile_bytes_ = 0;
    leaving_.clear();
    pause_reading(paused_, false);
    send_results();
    server_.schedule();
    server_.balance();
    server_.check_drained();
}

void Client::on_hello(const wire::Hello& hello) {
    wire::Welcome welcome;
    welcome.credit = server_.settings_.max_queued_payloads * server_.caps_.max_payload / 2;
    welcome.build = server_.settings_.build;
    welcome.numeric_class = server_.settings_.numeric_class;
    for (const ServedSlice& slice : server_.slices_)
        welcome.slices.push_back(slice.offer);
    result_credit_ = wire::CreditWindow(hello.credit);
    send(session_.welcome_for(hello, std::move(welcome)));
    server_.tell(LogLevel::info, fmt::format("{} connected ({})", link_->peer(), hello.build));
}

void Client::on_program(const wire::FrameHeader& header, wire::ProgramFrame&& program) {
    if (auto refusal = check_.add_program(header, program)) refuse(header, refusal->code, refusal->message);
}

void Client::on_compute(const wire::FrameHeader& header, wire::Compute&& compute) {
    const uint64_t payload_bytes = session_.payload_bytes();
    const auto refused = [&](wire::RefuseCode code, const std::string& message) {
        refuse(header, code, message);
        give_back(payload_bytes);
    };
    if (server_.draining_) return refused(wire::RefuseCode::draining, "this worker is leaving");
    Accepted accepted;
    if (auto refusal = check_.check_compute(header, compute, session_.peer_max_payload(), accepted)) {
        return refused(refusal->code, refusal->message);
    }
    RequestCost cost{payload_bytes, uint64_t{compute.n_rows_out} * accepted.n_out * sizeof(float),
                     accepted.rows_bytes + accepted.scratch_bytes, compute.expert.size()};
    if (accepted.scratch_bytes > std::max(server_.settings_.max_peer_bytes, server_.settings_.max_result_bytes)) {
        return refused(wire::RefuseCode::unsupported,
                       fmt::format("computing this takes {} MB at once", accepted.scratch_bytes >> 20));
    }
    if (!server_.has_room(cost, *this)) {
        return refused(wire::RefuseCode::busy, "the queue of this worker is full");
    }
    QueuedRequest request;
    request.header = header;
    request.arrived = heard_;
    request.cost = cost;
    request.job = {accepted.slice->engine,
                   static_cast<int>(header.layer),
                   std::move(accepted.program),
                   std::move(compute),
                   accepted.n_out,
                   accepted.at_once};
    payload_bytes_ += payload_bytes;
    server_.queued(cost);
    queue_.push_back(std::move(request));
}

void Client::on_malformed_request(const wire::FrameHeader& header, const Status& status) {
    refuse(header, wire::RefuseCode::malformed, status.message());
    if (header.type == wire::FrameType::compute) give_back(session_.payload_bytes());
}

void Client::on_credit(const wire::Credit& credit) {
    result_credit_.grant(credit.bytes);
    send_results();
}

void Client::on_ping(const wire::Ping& ping) {
    send(wire::encode(wire::Pong{
        .nonce = ping.nonce, .rows_done = server_.computer_.pairs_done(), .rows_queued = server_.pairs_waiting()}));
}

// --- requests --------------------------------------------------------------------------------------------------------

bool Client::ready() const { return !queue_.empty() && result_bytes_ <= server_.settings_.max_result_bytes; }

QueuedRequest Client::take() {
    QueuedRequest request = std::move(queue_.front());
    queue_.pop_front();
    ++n_computing_;
    result_bytes_ += request.cost.result_bytes;
    return request;
}

void Client::finish(const wire::FrameHeader& header, const RequestCost& cost, ComputeOutcome outcome, Duration waited) {
    --n_computing_;
    payload_bytes_ -= cost.payload_bytes;
    give_back(cost.payload_bytes);
    if (!outcome.status.ok()) {
        result_bytes_ -= cost.result_bytes;
        wire::RefuseCode code = wire::RefuseCode::failed;
        if (outcome.status.code() == Code::exhausted) code = wire::RefuseCode::busy;
        if (outcome.status.code() == Code::timeout) code = wire::RefuseCode::no_time_left;
        if (outcome.status.code() == Code::unsupported) code = wire::RefuseCode::unsupported;
        if (outcome.status.code() == Code::invalid_argument) code = wire::RefuseCode::malformed;
        return refuse(header, code, outcome.status.message());
    }
    Outgoing result;
    result.header = header;
    result.header.time_allowed_ms = 0;
    result.n_rows = header.rows;
    result.n_out = static_cast<uint32_t>(outcome.rows.size() / header.rows);
    result.rows = std::make_shared<const Floats>(std::move(outcome.rows));
    result.queue_us = clamped_us(waited);
    result.compute_us = clamped_us(outcome.compute);
    result.finished = server_.network_.loop().now();
    outgoing_.push_back(std::move(result));
    send_results();
}

void Client::refuse(const wire::FrameHeader& header, wire::RefuseCode code, const std::string& message) {
    log_debug("{}: request {} refused ({}): {}", link_->peer(), header.request, wire::refuse_code_name(code), message);
    wire::FrameHeader answer = header;
    answer.rows = answer.row_offset = answer.time_allowed_ms = 0;
    send(wire::encode(answer, wire::Refuse{code, message}));
}

void Client::give_back(uint64_t payload_bytes) { send(wire::encode(wire::Credit{payload_bytes})); }

// --- sending ---------------------------------------------------------------------------------------------------------

void Client::send(Bytes frame) {
    enqueued_ += frame.size();
    link_->send(std::move(frame));
}

void Client::send_results() {
    while (!outgoing_.empty() && link_->unsent() <= small_rest && send_tile(outgoing_.front())) {
        // Results take turns, so that a short one does not wait for all tiles of a long one.
        Outgoing result = std::move(outgoing_.front());
        outgoing_.pop_front();
        if (result.next_row < result.n_rows) {
            outgoing_.push_back(std::move(result));
        } else {
            std::erase_if(leaving_, [](const auto& rows) { return rows.expired(); });
            leaving_.push_back(result.rows);
        }
    }
}

/// False: the other end has not given enough credit.
bool Client::send_tile(Outgoing& result) {
    const uint64_t row_bytes = uint64_t{result.n_out} * sizeof(float);
    const uint64_t fixed_bytes = wire::result_payload_bytes(result.n_out, 0);
    const uint64_t rows_that_fit = (session_.peer_max_payload() - fixed_bytes) / row_bytes;
    const auto n_rows = static_cast<uint32_t>(
        std::min({uint64_t{wire::max_tile_rows}, rows_that_fit, uint64_t{result.n_rows - result.next_row}}));
    if (!result_credit_.spend(wire::result_payload_bytes(result.n_out, n_rows))) return false;

    wire::FrameHeader header = result.header;
    header.row_offset = result.next_row;
    header.flags = result.next_row + n_rows == result.n_rows ? wire::flag_last_tile : 0;
    const auto rows = std::span<const float>(*result.rows)
                          .subspan(size_t{result.next_row} * result.n_out, size_t{n_rows} * result.n_out);
    Bytes head = wire::encode_result_head(header, result.queue_us, result.compute_us, result.n_out, rows);
    result.next_row += n_rows;
    tiles_moved_ = server_.network_.loop().now();
    result_bytes_ -= rows.size_bytes();
    tile_bytes_ += head.size() + rows.size_bytes();
    enqueued_ += rows.size_bytes();
    send(std::move(head));
    link_->send_shared(as_bytes(rows), result.rows);
    return true;
}

void Client::close_with(Bytes last_frame) {
    if (link_->unsent() > small_rest || result_memory() > largest_kept_result) return link_->close(false);
    send(std::move(last_frame));
    link_->close(true);
}

void Client::say_goodbye(const std::string& message) {
    send(wire::encode(wire::GoAway{wire::RefuseCode::draining, message}));
}

bool Client::idle() const { return queue_.empty() && n_computing_ == 0 && outgoing_.empty() && link_->unsent() == 0; }

uint64_t Client::held_bytes() const {
    uint64_t held = session_.reader().held_bytes() + check_.held_bytes() + link_->unsent();
    for (const QueuedRequest& request : queue_)
        held += request.cost.payload_bytes + request.cost.result_bytes;
    return held + result_memory();
}

/// Of a result on its way out the part that the link has counts twice in held_bytes(), since that is sent from there.
uint64_t Client::result_memory() const {
    uint64_t bytes = 0;
    for (const Outgoing& result : outgoing_)
        bytes += result.rows->size() * sizeof(float);
    for (const auto& leaving : leaving_) {
        if (const auto rows = leaving.lock()) bytes += rows->size() * sizeof(float);
    }
    return bytes;
}

bool Client::keeps_memory_too_long(Instant now) const {
    const auto too_long = [&](Instant since, uint64_t bytes) {
        return now - since > server_.settings_.pressure_limit + time_for(bytes, slowest_rate_under_pressure);
    };
    if (frame_begun_ && !paused_ && !held_up_ && too_long(*frame_begun_, session_.reader().unfinished_size()))
        return true;
    if (link_->unsent() + result_memory() > small_rest && too_long(bytes_moved_, 0)) return true;
    return std::any_of(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& result) {
        return too_long(result.finished, result.rows->size() * sizeof(float));
    });
}

std::string Client::check(Instant now) {
    const uint64_t taken = enqueued_ - link_->unsent();
    if (taken != taken_ || link_->unsent() == 0) bytes_moved_ = now;
    if (outgoing_.empty()) tiles_moved_ = now;
    taken_ = taken;
    const bool reading = !paused_ && !held_up_;
    if (frame_begun_ && reading &&
        now - *frame_begun_ >
            server_.settings_.frame_limit + time_for(session_.reader().unfinished_size(), slowest_rate)) {
        return "a frame does not get on";
    }
    // A peer may read on and yet give no credit; then tiles stand still while other bytes move.
    if (now - std::min(bytes_moved_, tiles_moved_) > server_.settings_.stuck_limit)
        return "it does not take its results";
    if (!reading || !session_.established()) return "";
    if (now - heard_ > server_.settings_.silence_limit) return "it is silent";
    if (now - heard_ > server_.settings_.ping_after && !pinged_) {
        pinged_ = true;
        send(wire::encode(wire::Ping{id_}));
    }
    return "";
}

}  // namespace linkcpp::worker
