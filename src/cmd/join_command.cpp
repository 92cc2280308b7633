#include "cmd/join_command.h"

#include "base/log.h"
#include "base/secret.h"
#include "client/hub_account.h"
#include "cmd/blocked_signals.h"
#include "cmd/find_hub.h"
#include "cmd/join_report.h"
#include "cmd/join_token.h"
#include "cmd/node_folder.h"
#include "cmd/progress.h"
#include "worker/pull_slice.h"
#include "worker/slice_shelf.h"

namespace linkcpp::cmd {

namespace {

using namespace std::chrono_literals;

int fail(const Status& status, int exit_code = 1) {
    log_error("{}", status.message());
    return exit_code;
}

/// A command line that makes no sense, or something that may be better next time.
int exit_code_of(const Status& status) {
    return status.code() == Code::invalid_argument || status.code() == Code::unsupported ? 2 : 1;
}

/// The hub as the loop sees it.
class RealHub final : public worker::HubPort {
  public:
    explicit RealHub(client::HubAccount& account) : account_(account), api_(account.api()) {}
    Status register_node() override { return account_.enter(api_); }
    Result<std::map<std::string, std::string>> fingerprints() override { return api_.fingerprints(); }
    Result<std::vector<client::DemandSegment>> demand() override { return api_.demand(); }
    Result<client::Lease> volunteer(const client::VolunteerOffer& offer) override { return api_.volunteer(offer); }
    Result<client::CoverageAnswer> tell_coverage(const client::Coverage& coverage) override {
        return api_.tell_coverage(coverage);
    }
    Status leave() override { return api_.leave(); }

  private:
    client::HubAccount& account_;
    client::HubApi api_;
};

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
    app.add_option(
           "--hub", hub,
           "Take part in the swarm of this hub, which says what experts are needed; auto: the one on the local network")
        ->type_name("http[s]://HOST:PORT|auto");
    app.add_option("--max-experts", max_experts, "With --hub: experts to hold at most")->check(CLI::Range(1, 1 << 30));
    app.add_option("--data", data, "With --hub: folder for key and slices (default: the user's data folder)")
        ->type_name("FOLDER");
    app.add_option("--join-token", join_token, "With --hub: the token of a private swarm")->type_name("FILE");
    app.add_option("--advertise", advertise, "With --hub: where backbones reach this worker (default: --serve)")
        ->type_name("HOST:PORT");
    app.add_option("--hub-key", hub_key, "With --hub: the hub's key, when it is known (default: as at first contact)")
        ->type_name("HEX");
    app.add_option("--ca", ca_file, "With --hub: the authority that the hub's certificate is checked with, PEM")
        ->type_name("FILE");
    app.add_option("--log", log, "With --hub: text, or json for a line of JSON per event on standard output")
        ->check(CLI::IsMember({"text", "json"}));
}

int join(const JoinOptions& options, JoinContext context) {
    std::optional<Bytes> join_token;
    if (!options.join_token.empty()) {
        Result<Bytes> token = read_join_token(options.join_token);
        if (!token.ok()) return fail(token.status(), 2);
        join_token = std::move(*token);
    }
    std::optional<PublicKey> hub_key;
    if (!options.hub_key.empty()) {
        const Result<PublicKey> key = PublicKey::parse(options.hub_key);
        if (!key.ok()) return fail(key.status().in("--hub-key"), 2);
        hub_key = *key;
    }
    const auto url = find_hub(options.hub);
    if (!url.ok()) return fail(url.status(), exit_code_of(url.status()));
    const std::string folder = options.data.empty() ? default_node_folder(*url) : options.data;
    const client::HttpSettings http{.silence_limit = 10s, .ca_file = options.ca_file};
    const auto account = client::HubAccount::open({*url, folder, join_token, http, hub_key});
    if (!account.ok()) return fail(account.status());

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
        RealHub hub(**account);
        worker::SliceShelf shelf(folder, serving, *device, options.advertise,
                                 [&](const client::Lease& lease, const std::string& path,
                                     std::atomic<uint64_t>& arrived, const std::atomic<bool>& cancelled) {
                                     return worker::pull_slice(*url, http, *(*account)->hub_key(), lease.what, path,
                                                               arrived, cancelled);
                                 });
        worker::JoinSettings settings{.max_bytes = context.max_memory,
                                      .max_experts = options.max_experts,
                                      .seed = from_little_endian<uint32_t>(random_bytes(4).data())};
        worker::JoinLoop loop(clock, hub, shelf, settings,
                              [&](const worker::JoinEvent& event) { report.event(event); });
        log_info("node {}, slices in {}", (*account)->node(), folder);
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
