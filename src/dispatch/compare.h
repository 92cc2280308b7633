#pragma once
// Are two computations of the same rows the same? Bit for bit within a numeric class; across classes up to a small error per
// row (NMSE: the squared error over the squared size), measured in docs/NUMERICS.md.

#include "base/status.h"

#include <cstddef>
#include <span>
#include <string_view>

namespace linkcpp::dispatch {

enum class Depth {
    matrix,  ///< rows of one multiplication: nothing but the order of its additions can differ
    program  ///< rows of a whole program: a difference in the last bit is carried on, and may be rounded to a larger one
};

/// The largest error of a row between two numeric classes; 0 means every bit. An unknown class ("") is another one.
double tolerance(std::string_view one, std::string_view other, Depth depth);

/// `expected`, `got`: [n_out, n_rows]. Errors: mismatch, saying by how much; corrupt (another size).
Status compare_rows(std::span<const float> expected, std::span<const float> got, size_t n_out, double max_nmse);

}  // namespace linkcpp::dispatch
