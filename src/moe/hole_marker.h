#pragma once
// What stands at the head of every hole of a sparse backbone file. A hole reads as zeros, and zeros are valid quantised
// weights: without a marker a program would compute garbage. The marker says that there are no local weights, which
// model this is, and which digests its experts must have. Layout: docs/SLICES.md. Pure functions.

#include "base/digest.h"
#include "base/status.h"

#include <optional>
#include <vector>

namespace linkcpp::moe {

struct HoleMarker {
    Digest model_fingerprint;
    uint8_t kind = 0;  ///< TensorKind::code()
    uint32_t layer = 0;
    std::vector<Digest> digests;  ///< one per expert of the tensor, in order
};

/// Bytes of a marker for `n_expert` experts. A tensor smaller than that keeps its data in the backbone file.
size_t hole_marker_size(size_t n_expert);

Bytes encode_hole_marker(const HoleMarker& marker);

/// nullopt: no marker there (real weights). An error: the magic is there, but the rest is damaged (corrupt).
Result<std::optional<HoleMarker>> decode_hole_marker(ByteSpan head);

}  // namespace linkcpp::moe
