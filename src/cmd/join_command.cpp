#include "cmd/join_command.h"

#include "base/hex.h"
#include "base/log.h"
#include "base/secret.h"
#include "cmd/blocked_signals.h"
#include "cmd/join_report.h"
#include "cmd/join_token.h"
#include "cmd/node_folder.h"
#include "cmd/progress.h"
#include "worker/pull_slice.h"
#include "worker/slice_shelf.h"

#include <filesystem>
#include <fstream>

namespace linkcpp::cmd {

namespace {

using namespace std::chrono_literals;

int fail(const Status& status, int exit_code = 1) {
    log_error("{}", status.message());
    return exit_code;
}

/// The hub as its API, with its key pinned at the first contact, in DATA/hub.pub.
class RealHub final : public worker::HubPort {
  public:
    RealHub(client::HubApi& api, std::string pin_path) : api_(api), pin_path_(std::move(pin_path)) {
        std::ifstream file(pin_path_);
        std::string hex;
        if (file >> hex) {
            if (auto key = PublicKey::parse(hex); key.ok()) pinned_ = *key;
        }
    }
    Status register_node() override {
        const auto registration = api_.register_node(pinned_);
        if (!registration.ok()) return registration.status();
        if (!pinned_) {
            pinned_ = registration->hub;
            std::ofstream(pin_path_) << registration->hub.hex() << "\n";
            log_info("hub key {}, remembered in {}", registration->hub.hex(), pin_path_);
        }
        return {};
    }
    Result<std::map<std::string, std::string>> fingerprints() override { return api_.fingerprints(); }
    Result<std::vector<client::DemandSegment>> demand() override { return api_.demand(); }
    Result<client::Lease> volunteer(const client::VolunteerOffer& offer) override { return api_.volunteer(offer); }
    Result<client::CoverageAnswer> tell_coverage(const client::Coverage& coverage) override {
        return api_.tell_coverage(coverage);
    }
    Status leave() override { return api_.leave(); }

    /// Set from the first registration on, before any lease.
    const std::optional<PublicKey>& pinned() const { return pinned_; }

  private:
    client::HubApi& api_;
    const std::string pin_path_;
    std::optional<PublicKey> pinned_;
};

Status make_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return {Code::io, path + ": cannot be created: " + error.message()};
    return {};
}

JoinReport::Style style_of(const JoinOptions& options, const JoinContext& context) {
    if (options.log == "json") return JoinReport::Style::json;
    return context.quiet ? JoinReport::Style::quiet : JoinReport::Style::text;
}

/// Steps until a signal comes, or something that waiting does not help.
Status run(worker::JoinLoop& loop, JoinReport& report, const BlockedSignals& signals) {
    while (true) {
        const Result<Duration> wait = loop.step();
        if (!wait.ok()) return wait.status();
        report.status(loop.status());
        if (signals.wait_for(std::min<Duration>(*wait, 1s))) return {};
    }
}

}  // namespace

void JoinOptions::add_to(CLI::App& app) {
    app.add_option("--hub", hub, "Take part in the swarm of this hub: it says which experts are needed")
        ->type_name("http[s]://HOST:PORT");
    app.add_option("--max-experts", max_experts, "With --hub: experts to hold at most")->check(CLI::Range(1, 1 << 30));
    app.add_option("--data", data, "With --hub: folder for key and slices (default: the user's data folder)")
        ->type_name("FOLDER");
    app.add_option("--join-token", join_token, "With --hub: the token of a private swarm")->type_name("FILE");
    app.add_option("--advertise", advertise, "With --hub: where backbones reach this worker (default: --serve)")
        ->type_name("HOST:PORT");
    app.add_option("--ca", ca_file, "With --hub: the authority that the hub's certificate is checked with, PEM")
        ->type_name("FILE");
    app.add_option("--log", log, "With --hub: text, or json for a line of JSON per event on standard output")
        ->check(CLI::IsMember({"text", "json"}));
}

int join(const JoinOptions& options, JoinContext context) {
    const auto url = client::HubUrl::parse(options.hub);
    if (!url.ok()) return fail(url.status(), 2);
    std::optional<Bytes> join_token;
    if (!options.join_token.empty()) {
        Result<Bytes> token = read_join_token(options.join_token);
        if (!token.ok()) return fail(token.status(), 2);
        join_token = std::move(*token);
    }
    const std::string folder = options.data.empty() ? default_node_folder(*url) : options.data;
    if (const Status made = make_folder(folder); !made.ok()) return fail(made);
    const Result<SigningKey> key = SigningKey::load_or_create(folder + "/node.key");
    if (!key.ok()) return fail(key.status());

    const BlockedSignals signals;
    const Result<std::shared_ptr<moe::Device>> device = moe::Device::open(context.device, context.n_threads);
    if (!device.ok()) return fail(device.status());
    context.server.numeric_class = (*device)->numeric_class();
    const SteadyClock clock;
    JoinReport report(clock, style_of(options, context), stderr_is_terminal());
    net::TcpNetwork network(2);
    Status ended;
    {
        worker::Serving serving(network, *device, context.serve, context.server);
        client::HttpSettings http{.silence_limit = 10s, .ca_file = options.ca_file};
        client::HubApi api(*url, http, *key, join_token);
        RealHub hub(api, folder + "/hub.pub");
        worker::SliceShelf shelf(folder, serving, *device, options.advertise,
                                 [&](const client::Lease& lease, const std::string& path,
                                     std::atomic<uint64_t>& arrived, const std::atomic<bool>& cancelled) {
                                     return worker::pull_slice(*url, http, *hub.pinned(), lease.what, path, arrived,
                                                               cancelled);
                                 });
        worker::JoinSettings settings{.max_bytes = context.max_memory,
                                      .max_experts = options.max_experts,
                                      .seed = from_little_endian<uint32_t>(random_bytes(4).data())};
        worker::JoinLoop loop(clock, hub, shelf, settings,
                              [&](const worker::JoinEvent& event) { report.event(event); });
        log_info("node {}, slices in {}", key->public_key().fingerprint(), folder);
        ended = run(loop, report, signals);
        if (ended.ok()) log_info("leaving the swarm, finishing what is in flight; another Ctrl-C ends at once");
        std::signal(SIGINT, SIG_DFL);
        std::signal(SIGTERM, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        pthread_sigmask(SIG_SETMASK, &none, nullptr);
        loop.drain();
        serving.stop();
    }
    network.flush(30s);
    network.stop();
    return ended.ok() ? 0 : fail(ended);
}

}  // namespace linkcpp::cmd
