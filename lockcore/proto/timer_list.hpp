#pragma once

#include <lockcore/types.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace lockcore {

/// Functions to be called at given times. Those of one time are called in the order in which they were set.
///
/// Threads: not safe.
class timer_list {
  public:
    /// Identifies a timer that is set; the default value identifies none.
    struct handle {
        monotonic_time at{};
        std::uint64_t number = 0;
        // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the 0 of the generated comparison for a pointer
        friend auto operator<=>(const handle&, const handle&) = default;
    };

    handle set(monotonic_time at, std::function<void()> action) {
        const handle h{at, ++last_};
        timers_.emplace(h, std::move(action));
        return h;
    }
    /// Has no effect if the function was called already.
    void cancel(const handle& h) { timers_.erase(h); }
    /// Returns when the next function is due; empty if none is set.
    std::optional<monotonic_time> next() const {
        if (timers_.empty()) return std::nullopt;
        return timers_.begin()->first.at;
    }
    /// Calls the functions that are due. A function may set and cancel timers.
    void run_due(monotonic_time now) {
        while (!timers_.empty() && timers_.begin()->first.at <= now) {
            const auto due = timers_.extract(timers_.begin());
            due.mapped()();
        }
    }

  private:
    std::map<handle, std::function<void()>> timers_;
    std::uint64_t last_ = 0;
};

}  // namespace lockcore
