#pragma once

#include <lockcore/boot_clock.hpp>
#include <lockcore/types.hpp>

#include <algorithm>
#include <optional>

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

// Times in texts that another writer made: a node that is not what it should be may send any number.

/// The longest time that is calculated with, far above every ttl and max_hold.
inline constexpr milliseconds foreign_time_max = std::chrono::years{100};

/// Returns a time that a node reports, at most foreign_time_max; -1 ms for every negative number, which means that a key
/// has no ttl.
constexpr milliseconds limit_foreign_time(std::int64_t ms) {
    return milliseconds{std::clamp<std::int64_t>(ms, -1, foreign_time_max.count())};
}

/// Returns a time given as milliseconds since 1970; empty before 1970 and after 2261, which wall_time can't represent.
constexpr std::optional<wall_time> to_wall_time(std::int64_t ms) {
    constexpr auto last = std::chrono::floor<milliseconds>(wall_time::duration::max());
    if (ms < 0 || milliseconds{ms} > last) return std::nullopt;
    return wall_time{milliseconds{ms}};
}

}  // namespace lockcore
