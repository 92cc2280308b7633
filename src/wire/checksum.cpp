#include "wire/checksum.h"

// Compiled in here, so that no program depends on the library at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace linkcpp::wire {

uint64_t checksum(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace linkcpp::wire
