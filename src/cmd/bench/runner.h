#pragma once
// How a benchmark runs a model: in a process of its own (the hidden subcommand `bench-runner`) that loads it once and then
// measures what it is asked for, line by line. "decode N B PAUSE": N steps of B sequences, PAUSE ms before each; "prompt N":
// one prompt of N tokens. The answer is a line of milliseconds, one per step.

#include "cmd/bench/service.h"
#include "cmd/model_options.h"
#include "cmd/swarm_options.h"

namespace linkcpp::cmd::bench {

struct RunnerOptions {
    ModelOptions compute;
    SwarmOptions swarm;
    std::string rpc;         ///< HOST:PORT of a stock ggml-rpc-server, for the experts of `rpc_layers`
    std::string rpc_layers;  ///< a:b
};

class Runner {
  public:
    /// Returns when the model is loaded and has decoded a token.
    static Result<Runner> start(const RunnerOptions& options, const std::atomic<bool>& stop);
    double load_seconds() const { return load_seconds_; }
    /// Milliseconds of each step. `pause_ms`: before each, and not counted.
    Result<std::vector<double>> decode(int n_steps, uint32_t batch, int pause_ms, const std::atomic<bool>& stop);
    Result<double> prompt(int n_tokens, const std::atomic<bool>& stop);

  private:
    explicit Runner(Service service) : service_(std::move(service)) {}
    Result<std::vector<double>> ask(const std::string& question, const std::atomic<bool>& stop);

    Service service_;
    double load_seconds_ = 0;
};

}  // namespace linkcpp::cmd::bench
