#include "cmd/verification.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <unistd.h>

namespace linkcpp::cmd {

namespace {

/// Reads one position of a file of logits.
Status read_row(int descriptor, size_t row, std::vector<float>& values) {
    const size_t bytes = values.size() * sizeof(float);
    char* data = reinterpret_cast<char*>(values.data());
    for (size_t done = 0; done < bytes;) {
        const ssize_t size = pread(descriptor, data + done, bytes - done, static_cast<off_t>(row * bytes + done));
        if (size < 0 && errno == EINTR) continue;
        if (size < 0) return {Code::io, std::string("logits cannot be read: ") + std::strerror(errno)};
        if (size == 0) return {Code::corrupt, "a run recorded fewer logits than it told"};
        done += static_cast<size_t>(size);
    }
    return {};
}

}  // namespace

bool Verification::one_numeric_class() const {
    for (const auto& [worker, rows] : swarm.totals.pairs_by_worker) {
        const auto found = swarm.totals.class_by_worker.find(worker);
        const bool same = found != swarm.totals.class_by_worker.end() && found->second == swarm.numeric_class;
        if (rows > 0 && !same) return false;
    }
    return true;
}

std::optional<std::string> Verification::failure() const {
    if (!tokens.same()) {
        return fmt::format("{} of {} tokens are identical; the first difference is at token {}", tokens.identical,
                           tokens.total, divergence ? divergence->position + 1 : 0);
    }
    if (exact_mode && one_numeric_class() && !logits.identical()) {
        return fmt::format("the logits differ at {} of {} positions, although all workers compute with the same "
                           "instructions as this machine",
                           logits.positions() - logits.positions_identical(), logits.positions());
    }
    if (swarm.totals.pairs_remote == 0) return "no worker computed anything, so nothing was verified";
    return std::nullopt;
}

Result<Verification> compare_traces(Trace reference, int reference_logits, Trace swarm, int swarm_logits) {
    if (reference.n_vocab != swarm.n_vocab || reference.prompt != swarm.prompt ||
        reference.n_positions() != swarm.n_positions()) {
        return {Code::mismatch, "the two runs are of different models: the prompt has other tokens in each"};
    }
    Verification result;
    result.tokens = compare_tokens(reference.tokens, swarm.tokens);
    std::vector<float> a(reference.n_vocab), b(reference.n_vocab);
    if (const auto position = result.tokens.first_difference) {
        const size_t row = reference.prompt.size() - 1 + *position;
        LINKCPP_TRY(read_row(reference_logits, row, a));
        LINKCPP_TRY(read_row(swarm_logits, row, b));
        result.divergence = Divergence{*position,
                                       reference.tokens[*position],
                                       swarm.tokens[*position],
                                       reference.pieces[*position],
                                       swarm.pieces[*position],
                                       top2_margin(a),
                                       top2_margin(b)};
    }
    for (size_t row = 0; row < reference.n_positions(); ++row) {
        LINKCPP_TRY(read_row(reference_logits, row, a));
        LINKCPP_TRY(read_row(swarm_logits, row, b));
        result.logits.add(a, b);
        const auto token = static_cast<int32_t>(greedy_token(a)), other = static_cast<int32_t>(greedy_token(b));
        if (row + 1 < reference.prompt.size() || token == other) continue;
        result.flips.push_back(
            {row + 1 - reference.prompt.size(), token, other, "", "", top2_margin(a), top2_margin(b)});
    }
    result.reference = std::move(reference);
    result.swarm = std::move(swarm);
    return result;
}

}  // namespace linkcpp::cmd
