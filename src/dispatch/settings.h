#pragma once
// The times and caps of dispatch, in one place. Defaults follow the promises in docs/ARCHITECTURE.md ("Failing").

#include "base/clock.h"
#include "dispatch/request.h"

#include <atomic>
#include <string>

namespace linkcpp::dispatch {

using namespace std::chrono_literals;

struct Settings {
    std::string build;          ///< for HELLO
    std::string numeric_class;  ///< of the backbone's own computation
    SplitMode split = SplitMode::exact;

    Duration connect_timeout = 1s;  ///< one attempt, handshake included
    Duration settle_timeout = 2s;   ///< the first job waits this long for workers that are still connecting
    Duration backoff_min = 50ms, backoff_max = 2s;  ///< between attempts, doubled each time, with jitter
    Duration retry_refused = 10s;                   ///< before a worker that was refused is looked at again

    Duration stall_min = 250ms;  ///< silence that means trouble: max(this, 2 x p99 of the round trips)
    /// Bytes per second: a worker checks a large request before it answers the next ping.
    uint64_t slowest_reader = 64u << 20;
    uint32_t small_request = 64;   ///< pairs; the round trips of larger requests do not count for that
    Duration give_up_silent = 4s;  ///< silence after which the connection is closed
    Duration no_holder = 2500ms;   ///< nobody holds an expert for so long, and no holder is just silent: the job fails
    Duration compute_min = 2s;     ///< a worker that answers pings but does not get on: at least this …
    Duration compute_per_pair =
        20ms;  ///< … plus this per pair of the request, or per pair the worker says it has queued
    uint32_t max_queued_pairs = 4096;  ///< … but it is not believed beyond this
    int patience = 10;  ///< in all, a request may take so many times its own share, whatever the pongs say

    double hedge_share = 0.1;         ///< of all requests may be asked of a second replica too
    size_t hedge_after_samples = 20;  ///< so many requests of its size must be known of a worker before
    Duration hedge_min = 2ms;         ///< no request is late before

    double audit_share = 0;  ///< of a worker's answers that are computed again; 1: all of them, before they are used
    size_t max_audit_pairs = 1024;  ///< larger answers are not audited, unless all are
    Duration retry_liar = 1h;       ///< before a worker whose numbers were wrong is looked at again

    Duration check_stall = 2s;  ///< a worker whose slices are being checked is waited for, as long as that gets on
    Duration warn_every = 10s;  ///< of one worker; more warnings within that time are only counted
    const std::atomic<bool>* stop = nullptr;  ///< becomes true: all jobs end at once. Outlives the dispatcher

    uint64_t slowest_link = 16u << 10;  ///< bytes per second; the whole time allowed grows with the bytes so

    size_t max_unsent = 1u << 20;        ///< no further request is handed to a link that has not sent so much
    uint32_t max_payload = 16u << 20;    ///< largest RESULT tile accepted: 64 rows of 65536 floats
    uint64_t result_credit = 64u << 20;  ///< bytes of results under way per worker
};

}  // namespace linkcpp::dispatch
