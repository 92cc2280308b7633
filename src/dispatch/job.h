#pragma once
// The unit of work of dispatch: the routed experts of one layer for some tokens. Plain spans of floats and ids, no ggml.
// A pair is one (token, selected expert); pair p = token * n_used + slot. Spans stay valid while Dispatcher::run() runs.

#include "base/bytes.h"
#include "base/floats.h"

#include <memory>
#include <span>
#include <vector>

namespace linkcpp::dispatch {

/// An encoded expert program (docs/PROTOCOL.md) with what dispatch must know about it.
struct ProgramCode {
    Bytes code;
    uint32_t n_in = 0, n_out = 0;  ///< widths of an input and of an output row
    bool weighted = false;         ///< output rows are multiplied by router weights before they are summed
    bool operator==(const ProgramCode&) const = default;
};

struct ExpertJob {
    uint32_t layer = 0;
    std::shared_ptr<const ProgramCode> program;
    uint32_t n_tokens = 0, n_used = 0;
    bool x_per_pair = false;          ///< one activation row per pair instead of one per token
    bool want_sums = true;            ///< the graph sums a token's rows; otherwise it wants every row
    bool accept_missing = false;      ///< the caller can compute what nobody holds; else that is an error
    std::span<const float> x;         ///< [n_in, n_tokens], or [n_in, n_used * n_tokens]
    std::span<const int32_t> expert;  ///< [n_used, n_tokens]
    std::span<const float> weight;    ///< [n_used, n_tokens] when program->weighted, else empty

    uint32_t n_pairs() const { return n_tokens * n_used; }
};

/// What stands in a row of a result.
enum class RowState : uint8_t {
    missing,  ///< nobody computed it (only with accept_missing)
    raw,      ///< the expert's output row, not weighted
    partial,  ///< a weighted sum over this pair and the `covered` pairs of its token that belong to it
    covered,  ///< contained in a partial sum of an earlier pair of the token
};

/// Rows in the graph's own order, whoever computed them and whenever they came.
struct JobResult {
    Floats rows;                  ///< [n_out, n_pairs]; those that are missing or covered have no value
    std::vector<RowState> state;  ///< [n_pairs]
    uint32_t rows_remote = 0;     ///< pairs computed by workers
};

}  // namespace linkcpp::dispatch
