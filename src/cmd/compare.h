#pragma once
// How alike two runs of one model are: their tokens, and their logits position by position. Pure functions.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace linkcpp::cmd {

struct TokenComparison {
    size_t total = 0;      ///< tokens of the reference
    size_t identical = 0;  ///< positions with the same token
    std::optional<size_t> first_difference;
    bool same() const { return !first_difference; }
};

/// A run that is shorter or longer than the reference differs where the shorter one ends.
TokenComparison compare_tokens(std::span<const int32_t> reference, std::span<const int32_t> other);

/// The position of the largest value, the first of equals: the token that greedy sampling takes. 0 when empty.
size_t greedy_token(std::span<const float> logits);

/// How much the largest value is ahead of the second: small where another token was nearly as good.
float top2_margin(std::span<const float> logits);

/// Compares logits position by position.
class LogitComparison {
  public:
    void add(std::span<const float> reference, std::span<const float> other);

    size_t positions() const { return positions_; }
    size_t positions_identical() const { return positions_identical_; }
    /// Every value had the same bits.
    bool identical() const { return positions_identical_ == positions_; }
    /// Infinite where one side has a number and the other has none.
    double max_abs_diff() const { return max_abs_diff_; }
    /// The lowest cosine of any position; 1 where the bits are the same, 0 where one side has no direction.
    double cosine() const { return cosine_; }

  private:
    size_t positions_ = 0, positions_identical_ = 0;
    double max_abs_diff_ = 0, cosine_ = 1;
};

}  // namespace linkcpp::cmd
