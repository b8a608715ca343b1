#pragma once

#include <chrono>

namespace lockcore {

/// Reads CLOCK_BOOTTIME, which also advances while the machine is suspended; std::chrono::steady_clock does not.
/// The validity of a lease is measured with this clock, timers run on steady_clock.
struct boot_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<boot_clock>;
    static constexpr bool is_steady = true;
    static time_point now() noexcept;
};

/// The start or the end of a lease's validity.
using validity_time = boot_clock::time_point;

}  // namespace lockcore
