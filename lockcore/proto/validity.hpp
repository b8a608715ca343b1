#pragma once

#include <lockcore/boot_clock.hpp>
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

/// Returns the end of the validity of a lease with this ttl whose command was sent at `sent_at`. It is a time and not a
/// duration, for the process may be stopped between any two lines.
constexpr validity_time end_of_validity(milliseconds ttl, validity_time sent_at) {
    return sent_at + validity(ttl, std::chrono::nanoseconds{0});
}

}  // namespace lockcore
