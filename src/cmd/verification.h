#pragma once
// What `linkcpp verify` found: two traces of one model, compared; and how it is told. Pure but for compare_traces(),
// which reads the logits from their files.

#include "cmd/compare.h"
#include "cmd/trace.h"

#include <optional>
#include <string>

namespace linkcpp::cmd {

/// Where the runs part, and how close the decision was: a small margin is a tie that rounding broke.
struct Divergence {
    size_t position = 0;  ///< 0-based, in the generated tokens
    int32_t reference_token = 0, swarm_token = 0;
    std::string reference_piece, swarm_piece;
    float reference_margin = 0, swarm_margin = 0;  ///< logit of the likeliest token minus that of the second
};

struct Verification {
    Trace reference, swarm;
    std::string prompt;  ///< as the user gave it
    bool exact_mode = true;
    TokenComparison tokens;
    LogitComparison logits;
    std::optional<Divergence> divergence;  ///< the first difference of the two runs, each along its own tokens
    std::vector<Divergence> flips;         ///< all of the generated positions that would differ along the same tokens

    /// All rows came from machines that compute with the same instructions as this one: then every bit has to agree.
    bool one_numeric_class() const;
    /// nullopt: verified. Otherwise a sentence that says what is wrong.
    std::optional<std::string> failure() const;
};

/// `reference_logits`, `swarm_logits`: descriptors of the files that record_trace() filled. Errors: mismatch (two
/// different models), io, corrupt.
Result<Verification> compare_traces(Trace reference, int reference_logits, Trace swarm, int swarm_logits);

std::string report_text(const Verification& verification);
std::string report_json(const Verification& verification);

}  // namespace linkcpp::cmd
