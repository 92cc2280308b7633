#pragma once
// A vector of floats that does not set new elements to zero: for buffers of megabytes that are written in any case, or of
// which only some rows are ever touched. Pages that nobody touches cost nothing.

#include <bit>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace linkcpp {

template <typename T>
struct UnsetAllocator : std::allocator<T> {
    template <typename U>
    struct rebind {
        using other = UnsetAllocator<U>;
    };
    UnsetAllocator() = default;
    template <typename U>
    UnsetAllocator(const UnsetAllocator<U>&) noexcept {}

    template <typename U>
    void construct(U* at) noexcept {
        ::new (static_cast<void*>(at)) U;
    }
    template <typename U, typename... Arguments>
    void construct(U* at, Arguments&&... arguments) {
        std::construct_at(at, std::forward<Arguments>(arguments)...);
    }
};

/// Elements added by resize(n) and Floats(n) have no value yet.
using Floats = std::vector<float, UnsetAllocator<float>>;

/// No infinity and no NaN among `values`. Looks at all of them, without a branch for each.
inline bool all_finite(std::span<const float> values) {
    constexpr uint32_t exponent = 0x7f800000;  // all ones in infinities and NaNs only (IEEE 754)
    uint32_t bad = 0;
    for (const float value : values)
        bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & exponent) == exponent);
    return bad == 0;
}

}  // namespace linkcpp
