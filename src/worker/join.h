#pragma once
// The autonomous worker: registers with a hub, takes a lease on what is scarce, has it fetched and tested, serves it, tells
// the hub what it holds every few seconds, and moves on when another place needs it clearly more. The hub may be away at any time:
// what is held is served on, and the hub is asked again, later and later, with jitter.
//
// A state machine: step() does what is due and says when it wants to be called next. Clock, hub and slices are given, so
// that all of it is tested in virtual time. One thread.

#include "client/hub_api.h"

#include <random>

namespace linkcpp::worker {

/// The hub, as HubApi talks to it; errors as there.
class HubPort {
  public:
    virtual ~HubPort() = default;
    virtual Status register_node() = 0;
    virtual Result<std::map<std::string, std::string>> fingerprints() = 0;
    virtual Result<std::vector<client::DemandSegment>> demand() = 0;
    virtual Result<client::Lease> volunteer(const client::VolunteerOffer& offer) = 0;
    virtual Result<client::CoverageAnswer> tell_coverage(const client::Coverage& coverage) = 0;
    virtual Status leave() = 0;
};

/// Slices on this machine.
class SlicePort {
  public:
    virtual ~SlicePort() = default;

    struct Kept {
        client::Segment what;
        uint64_t bytes = 0;       ///< of memory, when it is served
        uint64_t n_experts = 0;   ///< of all its layers
        std::string fingerprint;  ///< of its model
    };
    /// What is on the disk from before, whole by its name and size; serve() finds what is damaged.
    virtual std::vector<Kept> kept() = 0;
    /// Begins to download and verify a slice; one at a time.
    virtual void fetch(const client::Lease& lease) = 0;
    struct Fetching {
        uint64_t bytes = 0;  ///< that have arrived
        std::optional<Result<Kept>> ended;
    };
    virtual Fetching fetching() = 0;
    virtual void stop_fetching() = 0;
    /// Serves exactly these, which are on the disk; others leave the memory. Nothing: stops serving. What was not served
    /// before is checked and tested. Errors: corrupt, mismatch, invalid_argument, unsupported (it is worth nothing); others
    /// may pass. Then what was served before, and is among these, is served on.
    virtual Status serve(const std::vector<client::Segment>& what) = 0;
    /// Removes a slice that is not served from the disk.
    virtual void forget(const client::Segment& what) = 0;
    virtual std::string address() = 0;  ///< where it serves
    virtual std::string numeric_class() = 0;
    virtual double load() = 0;
};

struct JoinSettings {
    uint64_t max_bytes = 0, max_experts = 0;  ///< 0: no limit; at least one is given
    Duration heartbeat_every = std::chrono::seconds(5);
    Duration ask_again = std::chrono::seconds(30);    ///< after there was nothing to lease; then later and later
    Duration look_around = std::chrono::seconds(60);  ///< whether another place is better
    Duration settle = std::chrono::minutes(10);       ///< between moves, unless experts have no holder at all
    double clearly_better = 1.25;                     ///< expected income there against here
    Duration first_backoff = std::chrono::seconds(1), longest_backoff = std::chrono::seconds(60);
    uint32_t seed = 1;  ///< of jitter
};

/// What happened, for people and for logs.
struct JoinEvent {
    enum class Kind {
        registered,
        kept,
        lease,
        fetched,
        fetch_failed,
        serving,
        moving,
        hub_away,
        hub_back,
        lapsed,
        drained
    };
    Kind kind;
    std::optional<client::Segment> what;
    std::string text;
};
const char* event_name(JoinEvent::Kind kind);

struct JoinStatus {
    bool registered = false, hub_away = false;
    size_t n_slices = 0;
    uint64_t n_experts = 0, held_bytes = 0;
    std::optional<client::Segment> fetching;
    uint64_t fetched_bytes = 0, fetch_bytes = 0;
    uint64_t best_reward = 0;  ///< per 1000 rows, of what is held
};

class JoinLoop {
  public:
    JoinLoop(const Clock& clock, HubPort& hub, SlicePort& slices, JoinSettings settings,
             std::function<void(const JoinEvent&)> tell);

    /// Does what is due. Time until it should be called again; earlier does no harm. Errors: what cannot get better by
    /// waiting (the hub does not want us; what is kept cannot be served).
    Result<Duration> step();
    /// Tells the hub that we leave, if it can be reached, and stops fetching. What is held stays on the disk.
    void drain();

    JoinStatus status();

  private:
    struct Held {
        SlicePort::Kept slice;
        Instant since{0};
        client::CoverageAnswer::Held terms;  // as the hub told last
    };

    Status begin();
    /// The calls of the hub that are due; the first error ends the round.
    Status reach_hub();
    Status enter();
    Status check_models();
    Status tell();
    Status ask();
    Status consider_moving();
    /// What is known of the hub by the outcome of a round. Errors: those that waiting does not help.
    Status note(const Status& round);
    void look_at_fetching();
    Status take(const SlicePort::Kept& slice);
    std::vector<client::Segment> segments() const;
    uint64_t used_bytes() const;
    uint64_t used_experts() const;
    std::optional<client::VolunteerOffer> offer(const Held* instead_of) const;
    /// What is held and another place that is clearly better.
    const Held* worth_leaving(const std::vector<client::DemandSegment>& demand) const;
    void start_fetch(const client::Lease& lease, std::optional<client::Segment> instead_of);
    Duration jittered(Duration duration);
    void say(JoinEvent::Kind kind, const std::string& text, std::optional<client::Segment> what = {});

    const Clock& clock_;
    HubPort& hub_;
    SlicePort& slices_;
    const JoinSettings settings_;
    const std::function<void(const JoinEvent&)> tell_;
    std::minstd_rand random_;

    bool begun_ = false, registered_ = false, ever_registered_ = false, models_checked_ = false, away_ = false;
    std::map<std::string, std::string> fingerprints_;
    std::vector<Held> held_;
    std::optional<client::Lease> fetching_;
    std::optional<client::Segment> instead_of_;  // what the lease under way replaces
    bool lapsed_ = false;                        // it is no lease any more; the download goes on
    uint64_t fetched_bytes_ = 0;
    double bytes_per_lease_byte_ = 1;  // memory that experts take, by what the hub counts
    int n_failures_ = 0;               // of the hub, one after the other
    int n_nothing_ = 0;                // times that there was nothing to lease, likewise
    Instant retry_at_{0}, tell_at_{0}, ask_at_{0}, look_at_{0};
};

}  // namespace linkcpp::worker
