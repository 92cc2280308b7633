#pragma once
// Dispatch: computes the routed experts of a layer on workers. All holders of a job's rows are asked at once (a star,
// never a chain); rows are placed in the graph's own order, so the result does not depend on who answered first. A worker
// that is gone, refuses or stalls loses its share to another holder inside the same job; what nobody holds is handed back
// to the caller (who may have the weights himself), or is an error that names layer and experts.
//
// Threads: start() and everything it causes run on the network's loop; run() may be called from any other thread.

#include "dispatch/budget.h"
#include "dispatch/peer.h"
#include "dispatch/placement.h"

#include <optional>
#include <set>

namespace linkcpp::dispatch {

/// Totals since the start.
struct DispatchStats {
    uint64_t jobs = 0, tokens = 0;               ///< tokens: summed over layers
    uint64_t rows_remote = 0, rows_missing = 0;  ///< pairs computed by workers / handed back to the caller
    uint64_t failovers = 0;                      ///< requests whose rows had to go elsewhere
    uint64_t hedges = 0, hedges_won = 0;         ///< requests asked of a second replica too, which was faster
    uint64_t audits = 0, audits_failed = 0;      ///< answers that were computed again, and were wrong
    Duration round_trip_p50{}, round_trip_p99{};
    std::vector<PeerStats> peers;
};

/// Who holds [expert_begin, expert_end) of a layer right now.
struct HolderInfo {
    std::string address, numeric_class;
    uint32_t layer_begin = 0, layer_end = 0, expert_begin = 0, expert_end = 0;
};

/// The slice of a worker, as it offers it.
struct SliceRange {
    uint32_t layer_begin = 0, layer_end = 0, expert_begin = 0, expert_end = 0;
    auto operator<=>(const SliceRange&) const = default;
};

struct AcceptedRows {
    net::Address worker;
    SliceRange slice;
    uint64_t rows = 0;
};

class Dispatcher final : private PeerObserver {
  public:
    /// `check` may be null (every worker is taken at its word: only for tests) and must outlive the dispatcher.
    Dispatcher(net::Network& network, Settings settings, std::vector<net::Address> workers, PeerCheck* check);
    /// On the loop, or after the loop has stopped.
    ~Dispatcher() override;

    /// Begins to connect; jobs do it as well. On the loop.
    void connect();
    /// From now on these are the workers, without a pause for jobs that run: new ones are connected to, those that are
    /// missing get nothing new and are left when they have answered. Any thread.
    void set_workers(std::vector<net::Address> workers);

    using Done = std::function<void(Status, JobResult)>;
    /// Computes a job; `done` is called once, on the loop. Errors: unavailable, with layer and experts. `memory`: a
    /// result that is not needed any more, whose memory is used again.
    void start(const ExpertJob& job, Done done, JobResult memory = {});
    /// The same for a caller on another thread, which waits. What `result` holds before is of no matter but as memory.
    Status run(const ExpertJob& job, JobResult& result);

    /// Calls `ready` once every worker was tried, or after the settle timeout; if `patient`, not before the workers whose
    /// slices are being checked are through with that, as long as it gets on. On the loop.
    void when_settled(bool patient, std::function<void()> ready);

    /// What came in time, was believed and not told by an earlier call; answers that are audited count once that is over,
    /// and rows of a worker whose numbers were wrong not at all. On the loop.
    std::vector<AcceptedRows> take_accepted_rows();

    DispatchStats stats() const;              ///< on the loop
    std::vector<HolderInfo> holders() const;  ///< on the loop
    net::Loop& loop() { return network_.loop(); }

  private:
    struct Part {  // one request of a job
        uint64_t job = 0;
        uint32_t peer = 0;
        RequestPlan plan;
        uint64_t twin = 0;  // the other request for the same rows, if there are two
        net::Loop::TimerId late = 0;
        SliceRange slice;  // that computes it
    };
    struct Check {         // an answer that is computed again
        uint64_t job = 0;  // 0: it was used already
        uint32_t peer = 0;
        uint64_t connection = 0;
        uint32_t layer = 0, n_out = 0;
        RequestPlan plan;
        Floats rows;
        std::optional<uint32_t> replica;  // that computes it; else it is done here
        SliceRange slice;                 // that computed it
    };
    struct AuditCount {
        uint64_t connection = 0, n_answers = 0;
    };
    struct Place {
        uint32_t peer = 0, offer = 0;
    };
    struct Running {
        ExpertJob job;
        Done done;
        JobResult result;
        std::vector<uint32_t> open;  // pairs that nobody was asked for yet
        size_t parts = 0;            // requests under way
        uint16_t attempt = 0;
        std::set<uint32_t> unable;  // workers that cannot take this job: over their cap
        std::set<uint32_t> busy;    // workers that refused just now; they are asked again if nobody else is left
        Instant stuck_since{};      // since when some pair has had no holder
        bool stuck = false, stuck_told = false;
        Status last_trouble;
    };

    void assign(uint64_t id);
    void send_part(uint64_t id, Running& running, uint32_t peer, uint32_t offer, std::vector<uint32_t> pairs);
    void finish(uint64_t id, Status status);
    Status nobody_holds(const Running& running) const;
    bool is_same_class(const Peer& peer) const;
    std::vector<Holder> candidates(const Running& running) const;
    void assign_again(uint64_t id, Duration delay);
    bool settled(bool patient) const;
    bool is_coming(const Peer& peer) const;
    bool stopped() const { return settings_.stop != nullptr && *settings_.stop; }
    void look_at_checks();
    void go_on_if_settled();
    void end_hopeless();
    std::map<uint64_t, Part>::iterator drop(std::map<uint64_t, Part>::iterator part);
    void use(uint64_t job, const RequestPlan& plan, std::span<const float> rows);
    void ask_again(uint64_t job, const std::vector<uint32_t>& pairs, uint32_t peer, const Status& why);
    void send_frame(const Running& running, Place place, wire::ComputeFrame frame);

    // dispatcher_workers.cpp
    void add_worker(net::Address address);
    void remember(PeerStats stats);
    std::optional<uint32_t> free_place() const;
    void update_workers(std::vector<net::Address> workers);
    bool end_retired();
    SliceRange slice_of(Place place) const;
    void accept(uint32_t peer, const SliceRange& slice, size_t n_pairs);
    void tell_stuck();

    // dispatcher_hedges.cpp
    std::optional<Place> replica(const Running& running, const RequestPlan& plan, uint32_t peer, bool any_class) const;
    void watch(uint64_t part);
    void hedge(uint64_t part);
    void end_race(uint64_t id, const Part& winner);

    // dispatcher_audits.cpp
    enum class Audit { none, before_use, after_use };
    Audit audit_wanted(uint32_t peer, size_t n_pairs);
    bool start_check(const Running& running, Check check);
    void check_by_replica(uint64_t id, const Status& answered, std::span<const float> rows);
    void check_done(Check check, const Status& verdict);
    void distrust(const Check& check, const Status& verdict);
    void drop_checks(uint64_t job);
    void keep_ticking();
    void tick();

    void peer_changed(Peer& peer) override;
    void request_done(Peer& peer, uint64_t id, Floats& rows) override;
    void request_failed(Peer& peer, uint64_t id, const Status& status) override;

    net::Network& network_;
    Settings settings_;
    std::vector<std::unique_ptr<LatencyWindow>> round_trips_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::map<uint64_t, Running> jobs_;
    std::map<uint64_t, Part> parts_;
    std::map<uint64_t, Check> checks_;  // by request id, or an id of its own
    std::map<uint32_t, AuditCount> audited_;
    std::map<std::pair<uint32_t, SliceRange>, uint64_t> accepted_;  // by worker; taken by take_accepted_rows()
    std::vector<PeerStats> gone_;                                   // of workers whose place another one has now
    std::set<uint32_t> late_;                                       // who came later: no job waits for them to settle
    Budget hedges_;
    Status distrust_;  // numbers that were used are wrong: the next job says so
    std::vector<std::pair<bool, std::function<void()>>> waiting_for_settled_;
    PeerCheck* check_;
    uint64_t check_progress_ = 0;
    Instant check_moved_{};
    std::string coming_;  // whom the log said to be waited for
    uint64_t next_id_ = 1;
    net::Loop::TimerId ticker_ = 0;
    Instant first_connect_{-1};
    DispatchStats totals_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace linkcpp::dispatch
