#pragma once

#include <chrono>

namespace lockcore {

/// CLOCK_BOOTTIME: goes on while the machine is suspended, which std::chrono::steady_clock does not. Whether a lease is
/// still valid is measured by it; timers run by steady_clock.
struct boot_clock {
    using duration = std::chrono::nanoseconds;
    using rep = duration::rep;
    using period = duration::period;
    using time_point = std::chrono::time_point<boot_clock>;
    static constexpr bool is_steady = true;
    static time_point now() noexcept;
};

/// A time until which a lease is valid, or from which that is counted.
using validity_time = boot_clock::time_point;

}  // namespace lockcore
