#pragma once
// What `linkcpp doctor` finds out about a set-up. Checks look and report; they change nothing.

#include "backend/config.h"
#include "base/status.h"
#include "wire/messages.h"

#include <string>
#include <vector>

namespace linkcpp::cmd {

enum class Level { ok, warning, problem };

struct Finding {
    Level level = Level::ok;
    std::string check;    ///< "plugin", "model", "worker 10.0.0.5:50071", …
    std::string message;  ///< what was found
    std::string advice;   ///< what to do; empty when ok
};

struct Setup {
    std::string model, backbone;      ///< files; either may be empty
    backend::ModelSettings settings;  ///< of this model
    int n_threads = 0;                ///< 0: not chosen
};

/// What a worker said when it was asked who it is.
struct Probe {
    Status status;  ///< ok: `welcome` is there
    wire::Welcome welcome;
    Duration round_trip{};
};

/// Asks all workers at once, in the order of `workers`.
std::vector<Probe> probe_workers(const std::vector<net::Address>& workers, const std::string& numeric_class);

void check_programs(std::vector<Finding>& findings);
void check_files(const Setup& setup, std::vector<Finding>& findings);
void check_workers(const Setup& setup, std::vector<Finding>& findings);
void check_machine(const Setup& setup, std::vector<Finding>& findings);

}  // namespace linkcpp::cmd
