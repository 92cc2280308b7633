#pragma once
// The checksum of a frame. It finds accidents (a broken cable, memory or proxy), not attackers. Pure; any thread.

#include "base/bytes.h"

namespace linkcpp::wire {

/// XXH3-64 with seed 0.
uint64_t checksum(ByteSpan bytes);
/// Of both, one behind the other.
uint64_t checksum(ByteSpan first, ByteSpan second);

}  // namespace linkcpp::wire
