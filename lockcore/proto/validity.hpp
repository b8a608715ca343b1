#pragma once

#include <lockcore/types.hpp>

namespace lockcore {

/// Returns the validity of a lease (docs/protocol.md R6): ttl − time elapsed since before the first send − allowance for
/// clock drift (1 % of the ttl + 2 ms). If it is not above zero there is no grant.
///
/// Source: Redlock, "the algorithm", step 3.
constexpr std::chrono::microseconds validity(milliseconds ttl, std::chrono::nanoseconds elapsed) {
    using std::chrono::microseconds;
    const auto drift = std::chrono::duration_cast<microseconds>(ttl) / 100 + milliseconds{2};
    return ttl - std::chrono::ceil<microseconds>(elapsed) - drift;
}

}  // namespace lockcore
