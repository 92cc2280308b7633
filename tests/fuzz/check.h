#pragma once
// What the fuzz targets share: a check that stays in every build, and numbers cut off the front of an input.

#include "base/bytes.h"

#include <cstdio>
#include <cstdlib>

namespace linkcpp::fuzz {

/// A promise of the product that the input at hand has broken: libFuzzer keeps the input and ends.
inline void require(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
}

/// The first number of `input`, zero where it is too short.
template <typename T>
T cut(ByteSpan& input) {
    if (input.size() < sizeof(T)) {
        input = {};
        return T{};
    }
    const T value = from_little_endian<T>(input.data());
    input = input.subspan(sizeof(T));
    return value;
}

}  // namespace linkcpp::fuzz
