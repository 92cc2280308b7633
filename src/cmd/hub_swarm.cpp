#include "cmd/hub_swarm.h"

#include "cmd/join_token.h"

#include <charconv>
#include <fmt/format.h>

namespace linkcpp::cmd {

namespace {

constexpr uint32_t max_target = 1000;

}  // namespace

void HubSwarmOptions::add_to(CLI::App& app) {
    auto* open_option = app.add_flag("--open", open, "Anybody may join the swarm (default on a loopback address)");
    app.add_option("--join-token", join_token, "Only who has this token may join")
        ->type_name("FILE")
        ->excludes(open_option);
    app.add_option("--target-replicas", targets,
                   "Replicas that are wanted of every expert, of all models or of one; may be given several times "
                   "(default: 2)")
        ->type_name("[NAME=]N")
        ->allow_extra_args(false);
    app.add_option("--welcome", welcome, "Credits that every new node is granted, to pay for rows with")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
        ->type_name("CREDITS");
    app.add_option("--grant", grants, "Grant credits to a node, once for every amount; may be given several times")
        ->type_name("NODE=CREDITS")
        ->allow_extra_args(false);
}

Result<hub::SwarmSettings> HubSwarmOptions::settings(bool on_loopback) const {
    hub::SwarmSettings settings;
    settings.welcome_credits = welcome;
    settings.takes_nodes = open || !join_token.empty() || on_loopback;
    if (join_token.empty()) return settings;
    Result<Bytes> token = read_join_token(join_token);
    if (!token.ok()) return token.status();
    settings.identity.join_token = std::move(*token);
    return settings;
}

Result<hub::ReplicaTargets> HubSwarmOptions::replica_targets() const {
    hub::ReplicaTargets replicas;
    for (const std::string& text : targets) {
        const size_t number = text.rfind('=') + 1;  // 0 without a name
        uint32_t target = 0;
        const char* end = text.data() + text.size();
        const auto [parsed, error] = std::from_chars(text.data() + number, end, target);
        if (error != std::errc() || parsed != end || number == 1 || target < 1 || target > max_target) {
            return {Code::invalid_argument,
                    fmt::format("--target-replicas '{}' is not [NAME=]N, with N from 1 to {}", text, max_target)};
        }
        (number == 0 ? replicas.others : replicas.by_model[text.substr(0, number - 1)]) = target;
    }
    return replicas;
}

Status HubSwarmOptions::make_grants(hub::Swarm& swarm) const {
    for (const std::string& text : grants) {
        const size_t equals = text.find('=');
        int64_t credits = 0;
        const char* end = text.data() + text.size();
        const bool number = equals == 32 && std::from_chars(text.data() + equals + 1, end, credits).ptr == end;
        if (!number || credits <= 0)
            return {Code::invalid_argument,
                    "--grant " + text + ": give it as NODE=CREDITS, NODE being 32 hexadecimal digits"};
        LINKCPP_TRY(swarm.grant(text.substr(0, equals), credits));
    }
    return {};
}

std::string swarm_line(const hub::SwarmSettings& settings) {
    if (!settings.takes_nodes) return "swarm: closed, nobody can join (see --open and --join-token)";
    return settings.identity.join_token ? "swarm: private, who has the join token can join"
                                        : "swarm: open, anybody can join";
}

}  // namespace linkcpp::cmd
