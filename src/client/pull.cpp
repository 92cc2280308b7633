#include "client/pull.h"

#include "base/log.h"
#include "base/threads.h"
#include "client/part_file.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

namespace linkcpp::client {

namespace {

/// One request asks for neighbours up to this many bytes, or for one unit that is larger.
constexpr uint64_t job_bytes = 32 << 20;
/// Bytes between two units (padding, small holes) that are rather received than asked around.
constexpr uint64_t max_gap = 64 << 10;
constexpr std::chrono::milliseconds look_around{100};

/// Units [begin, end) of a file, in one request.
struct Job {
    PartFile* file = nullptr;
    size_t begin = 0, end = 0;
};

/// "the hub answers 404: there is no model 'x' here (this hub serves: m)"
Status refusal(const HttpAnswer& answer) {
    std::string message, hint;
    const nlohmann::json body = nlohmann::json::parse(answer.text, nullptr, false);
    if (body.is_object() && body.contains("error") && body["error"].is_object()) {
        message = body["error"].value("message", "");
        hint = body["error"].value("hint", "");
    }
    const Code code = answer.status == 404   ? Code::not_found
                      : answer.status >= 500 ? Code::unavailable
                      : answer.status == 429 ? Code::unavailable
                                             : Code::invalid_argument;
    std::string text =
        fmt::format("the hub answers {}: {}{}", answer.status, message.empty() ? "no reason given" : message,
                    hint.empty() ? "" : " (" + hint + ")");
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return {code, text};
}

class Puller {
  public:
    Puller(const HubUrl& url, const PullSettings& settings) : url_(url), settings_(settings) {
        settings_.http.stop = &stop_;
    }

    Result<Pulled> run(const std::vector<PullFile>& plans) {
        static const std::atomic<bool> never = false;
        const std::atomic<bool>& cancelled = settings_.cancelled ? *settings_.cancelled : never;
        for (const PullFile& plan : plans) {
            auto file = PartFile::open(plan, settings_.checking, cancelled);
            if (!file.ok()) return file.status();
            files_.push_back(std::move(*file));
        }
        plan_jobs();
        last_byte_ = clock_.now();
        std::vector<std::thread> threads;
        const size_t n_threads = std::min(jobs_.size(), static_cast<size_t>(settings_.n_connections));
        for (size_t i = 0; i < n_threads; ++i)
            threads.push_back(start_thread("lc-pull", [this] { work(); }));
        watch(cancelled);
        for (std::thread& thread : threads)
            thread.join();
        if (!failure_.ok()) return failure_;
        for (const auto& file : files_)
            LINKCPP_TRY(file->complete());
        for (const auto& file : files_)
            LINKCPP_TRY(file->publish());
        result_.fetched = fetched_;
        return result_;
    }

  private:
    // --- what there is to do -----------------------------------------------------------------------------------------

    void plan_jobs() {
        for (const auto& file : files_) {
            const auto& units = file->plan().units;
            for (size_t i = 0; i < units.size(); ++i) {
                result_.bytes += units[i].bytes;
                result_.resumed += file->have(i);
            }
            add_jobs(*file, 0, units.size());
        }
        done_ = result_.resumed;
    }

    /// Jobs for those of the units that are not done. Before the threads start, or under mutex_.
    void add_jobs(PartFile& file, size_t begin, size_t end) {
        const auto& units = file.plan().units;
        Job job;
        uint64_t bytes = 0, position = 0;
        for (size_t i = begin; i < end; ++i) {
            if (file.is_done(i)) continue;
            const uint64_t lacks = units[i].bytes - file.have(i);
            // A unit that has begun is the first of its job, so that a job is one range.
            const bool joins =
                job.file && file.have(i) == 0 && units[i].offset - position <= max_gap && bytes + lacks <= job_bytes;
            if (!joins) {
                if (job.file) push(job);
                job = {&file, i, i};
                bytes = 0;
            }
            job.end = i + 1;
            bytes += lacks;
            position = units[i].offset + units[i].bytes;
        }
        if (job.file) push(job);
    }

    void push(const Job& job) {
        jobs_.push_back(job);
        ++open_jobs_;
    }

    // --- the threads that fetch --------------------------------------------------------------------------------------

    void work() {
        HttpClient client(url_, settings_.http);
        std::minstd_rand random(std::random_device{}());
        int failures = 0;
        for (;;) {
            Job job;
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [this] { return stop_ || open_jobs_ == 0 || !jobs_.empty(); });
                if (stop_ || open_jobs_ == 0) return;
                job = jobs_.front();
                jobs_.pop_front();
            }
            const uint64_t before = fetched_;
            const Status status = fetch(client, job);
            {
                const std::lock_guard lock(mutex_);
                --open_jobs_;
                add_jobs(*job.file, job.begin, job.end);
            }
            changed_.notify_all();
            if (status.ok()) {
                failures = 0;
                continue;
            }
            if (!worth_a_retry(status)) return fail(status);
            failures = fetched_ != before ? 1 : failures + 1;
            back_off(status, failures, random);
        }
    }

    static bool worth_a_retry(const Status& status) {
        return status.code() == Code::unavailable || status.code() == Code::timeout;
    }

    void back_off(const Status& why, int failures, std::minstd_rand& random) {
        if (clock_.now() - last_byte_.load() > settings_.patience)
            return fail(Status(Code::unavailable, why.message() + "; what has arrived is kept, start again to go on"));
        if (!told_.exchange(true)) log_warning("{}; trying again", why.message());
        const Duration longest =
            std::min(settings_.longest_backoff, settings_.first_backoff * (1 << std::min(failures - 1, 10)));
        const Duration wait = longest / 2 + longest / 2 * static_cast<int>(random() % 1000) / 1000;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, wait, [this] { return stop_.load(); });
    }

    Status fetch(HttpClient& client, const Job& job) {
        const auto& units = job.file->plan().units;
        const uint64_t begin = units[job.begin].offset + job.file->have(job.begin);
        const uint64_t end = units[job.end - 1].offset + units[job.end - 1].bytes;
        HttpRequest request;
        request.target = job.file->plan().target;
        request.headers.emplace_back("Range", fmt::format("bytes={}-{}", begin, end - 1));
        size_t unit = job.begin;
        std::optional<uint64_t> position;
        const auto answer = client.stream(request, [&](const HttpAnswer& head, ByteSpan piece) -> Status {
            fetched_ += piece.size();
            last_byte_ = clock_.now();
            told_ = false;
            if (!position) {
                const std::string expected = fmt::format("bytes {}-{}/{}", begin, end - 1, job.file->plan().bytes);
                if (head.status != 206 || head.header("content-range") != expected)
                    return {Code::mismatch,
                            "the hub sends something else than the manifest describes: the model was replaced, "
                            "or something in between does not pass on ranges; start again"};
                position = begin;
            }
            return take(*job.file, unit, job.end, *position, piece);
        });
        if (unit < job.end && !job.file->is_done(unit) && job.file->have(unit) > 0) job.file->note(unit);
        if (!answer.ok()) return answer.status();
        return answer->ok() ? Status() : refusal(*answer);
    }

    /// Distributes what arrived at `position` over the units from `unit` on.
    Status take(PartFile& file, size_t& unit, size_t end, uint64_t& position, ByteSpan piece) {
        while (!piece.empty() && unit < end) {
            const PullUnit& into = file.plan().units[unit];
            const bool in_gap = position < into.offset;
            const uint64_t left = in_gap ? into.offset - position : into.offset + into.bytes - position;
            const ByteSpan part = piece.first(static_cast<size_t>(std::min<uint64_t>(left, piece.size())));
            piece = piece.subspan(part.size());
            position += part.size();
            if (in_gap) continue;
            const uint64_t before = file.have(unit);
            const auto right = file.add(unit, part);
            if (!right.ok()) return right.status();
            done_ += part.size();
            if (!*right) {
                done_ -= before + part.size();
                LINKCPP_TRY(count_wrong(into));
            }
            if (position == into.offset + into.bytes) ++unit;
        }
        return {};
    }

    Status count_wrong(const PullUnit& unit) {
        const std::lock_guard lock(mutex_);
        result_.n_wrong += 1;
        if (++wrong_[unit.what] < settings_.max_wrong) {
            log_warning("{} arrived damaged; fetching it again", unit.what);
            return {};
        }
        return {Code::corrupt,
                fmt::format("{} arrived damaged {} times: the hub's copy of the model is not what its manifest "
                            "says, or something in between changes it",
                            unit.what, settings_.max_wrong)};
    }

    // --- the thread that watches -------------------------------------------------------------------------------------

    void fail(const Status& status) {
        {
            const std::lock_guard lock(mutex_);
            if (failure_.ok()) failure_ = status;
            stop_ = true;
        }
        changed_.notify_all();
    }

    void watch(const std::atomic<bool>& cancelled) {
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                changed_.wait_for(lock, look_around, [this] { return stop_ || open_jobs_ == 0; });
                if (stop_ || open_jobs_ == 0) break;
            }
            if (settings_.progress) settings_.progress(done_, result_.bytes, result_.resumed);
            if (cancelled) fail({Code::unavailable, "interrupted; what has arrived is kept, start again to go on"});
        }
        if (!stop_ && settings_.progress) settings_.progress(result_.bytes, result_.bytes, result_.resumed);
    }

    const HubUrl& url_;
    PullSettings settings_;
    const SteadyClock clock_;
    std::vector<std::unique_ptr<PartFile>> files_;
    std::atomic<bool> stop_ = false, told_ = false;
    std::atomic<uint64_t> done_ = 0, fetched_ = 0;
    std::atomic<Instant> last_byte_{Instant(0)};

    std::mutex mutex_;
    std::condition_variable changed_;
    // Protected by mutex_.
    std::deque<Job> jobs_;
    size_t open_jobs_ = 0;  ///< waiting or under way
    std::map<std::string, int> wrong_;
    Status failure_;
    Pulled result_;
};

}  // namespace

Result<SignedManifest> fetch_manifest(const HubUrl& url, const std::string& model, const HttpSettings& settings) {
    HttpSettings large = settings;
    large.max_text = 256u << 20;
    HttpClient client(url, large);
    const auto answer = client.call({.target = "/api/proxy/models/" + model + "/manifest"});
    if (!answer.ok()) return answer.status();
    if (answer->status != 200) return refusal(*answer);
    return read_manifest(answer->text);
}

Result<Pulled> pull(const HubUrl& url, const std::vector<PullFile>& files, const PullSettings& settings) {
    return Puller(url, settings).run(files);
}

}  // namespace linkcpp::client
