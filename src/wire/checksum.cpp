#include "wire/checksum.h"

// Compiled in here, so that no program depends on the library at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace linkcpp::wire {

uint64_t checksum(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t checksum(ByteSpan first, ByteSpan second) {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    XXH3_64bits_update(&state, first.data(), first.size());
    XXH3_64bits_update(&state, second.data(), second.size());
    return XXH3_64bits_digest(&state);
}

}  // namespace linkcpp::wire
