#pragma once
// A trace: everything that one greedy run of a model computed, to be compared with another run of it. It is recorded by
// a process of its own (the hidden subcommand `trace`), so that neither run can lean on the other's memory, backends or
// threads: the trace comes on standard output as JSON, all logits go to a file.

#include "base/status.h"
#include "cmd/model_options.h"
#include "cmd/swarm_options.h"

#include <atomic>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace linkcpp::cmd {

struct Trace {
    std::vector<int32_t> prompt, tokens;  ///< tokens: the n that greedy sampling took, end of text ignored
    std::vector<std::string> pieces;      ///< text of each of the tokens
    std::string text;                     ///< of all of them
    size_t n_vocab = 0;
    bool followed = false;           ///< the logits are those of the reference's tokens, not of its own
    std::string numeric_class;       ///< of this process's CPU backend
    double prompt_tps = 0, tps = 0;  ///< tokens per second
    double rss_mb = 0;               ///< the most memory that was resident at any time
    backend::Totals totals;          ///< empty without workers

    /// Positions with logits: all of the prompt, and of all tokens but the last, which nothing follows.
    size_t n_positions() const { return tokens.empty() ? 0 : prompt.size() + tokens.size() - 1; }
};

/// What is recorded: prompt and options, n tokens.
struct TraceOptions {
    ModelOptions compute;
    PromptOptions prompt;
    SwarmOptions swarm;
    int n_predict = 32;
};

nlohmann::ordered_json to_json(const Trace& trace);
/// Errors: corrupt.
Result<Trace> trace_from_json(const std::string& text);

/// Records a trace in another process. `logits`: descriptor of a file for them, float32 [n_vocab, n_positions]. With
/// `follow`, the tokens of a reference: where the run's own tokens differ, its logits are computed again along the
/// reference's. The process tells the user about its errors itself. Errors: unavailable, io, corrupt.
Result<Trace> record_trace(const TraceOptions& options, const std::vector<int32_t>* follow, int logits,
                           const std::atomic<bool>& stop);

}  // namespace linkcpp::cmd
