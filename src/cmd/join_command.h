#pragma once
// linkcpp-expert-worker --hub: the options of the autonomous worker, and its life from start to Ctrl-C.

#include "moe/engine.h"
#include "net/loop.h"
#include "worker/server.h"

#include <CLI/CLI.hpp>

namespace linkcpp::cmd {

struct JoinOptions {
    std::string hub, data, advertise, join_token, hub_key, ca_file, log = "text";
    uint64_t max_experts = 0;

    void add_to(CLI::App& app);
    bool given() const { return !hub.empty(); }
};

/// What the worker has from its other options.
struct JoinContext {
    net::Address serve;
    std::string device;
    int n_threads = 0;
    uint64_t max_memory = 0;  ///< 0: no limit was given
    worker::ServerSettings server;
    bool quiet = false;
};

/// Runs until a signal; the exit code.
int join(const JoinOptions& options, JoinContext context);

}  // namespace linkcpp::cmd
