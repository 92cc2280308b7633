#pragma once
// The options of linkcpp-hub that are about its swarm: who may join, what is wanted, who may spend.

#include "hub/market_spec.h"
#include "hub/swarm.h"

#include <CLI/CLI.hpp>

namespace linkcpp::cmd {

struct HubSwarmOptions {
    bool open = false;
    std::string join_token;  ///< a file
    std::vector<std::string> grants;
    int64_t welcome = 0;
    std::vector<std::string> targets;  ///< [NAME=]N

    void add_to(CLI::App& app);
    /// Where nothing was said about who may join, everybody may if only this machine can reach the port. Errors:
    /// those of read_join_token().
    Result<hub::SwarmSettings> settings(bool on_loopback) const;
    /// Errors: invalid_argument (not [NAME=]N).
    Result<hub::ReplicaTargets> replica_targets() const;
    /// Errors: invalid_argument (not NODE=CREDITS), those of the store.
    Status make_grants(hub::Swarm& swarm) const;
};

/// "swarm: open", "swarm: private, …"
std::string swarm_line(const hub::SwarmSettings& settings);

}  // namespace linkcpp::cmd
