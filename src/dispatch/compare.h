#pragma once
// Are two computations of the same rows the same? Bit for bit within a numeric class, NMSE <= 1e-4 per row across classes.

#include "base/status.h"

#include <cstddef>
#include <span>

namespace linkcpp::dispatch {

/// `expected`, `got`: [n_out, n_rows]. Errors: mismatch, saying by how much; corrupt (another size).
Status compare_rows(std::span<const float> expected, std::span<const float> got, size_t n_out, bool same_class);

}  // namespace linkcpp::dispatch
