#pragma once

#include <lockcore/types.hpp>

namespace lockcore {

/// What is left of a lease for certain (docs/protocol.md R6): ttl − time spent since before the first send − (1 % of
/// the ttl + 2 ms). Not above zero: no grant. Source: Redlock, "the algorithm", step 3.
constexpr std::chrono::microseconds validity(milliseconds ttl, std::chrono::nanoseconds spent) {
    using std::chrono::microseconds;
    const auto drift = std::chrono::duration_cast<microseconds>(ttl) / 100 + milliseconds{2};
    return ttl - std::chrono::ceil<microseconds>(spent) - drift;
}

}  // namespace lockcore
