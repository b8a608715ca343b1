#pragma once

#include <gateway/config/limits.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace fencegate::limits {

using time_point = std::chrono::steady_clock::time_point;

/// A token bucket: `size` requests at once, and one more for each `interval`.
struct bucket_size {
    std::chrono::nanoseconds interval{0};  ///< 0: no limit.
    std::size_t size = 0;

    bool is_limited() const { return interval.count() > 0; }
    std::chrono::nanoseconds time_to_fill() const {
        return interval * static_cast<std::chrono::nanoseconds::rep>(size);
    }
};

/// Returns the bucket of a configured rate.
inline bucket_size make_bucket_size(const request_rate& rate) {
    if (rate.per_second == 0) return {};
    return {std::chrono::nanoseconds(std::chrono::seconds(1)) / rate.per_second,
            rate.burst == 0 ? rate.per_second : rate.burst};
}

inline bucket_size make_bucket_size_per_minute(std::size_t per_minute) {
    if (per_minute == 0) return {};
    return {std::chrono::nanoseconds(std::chrono::minutes(1)) / per_minute, per_minute};
}

/// The requests that share a bucket. Those that use a lease by its id have one of their own, so that no other request
/// of the caller takes what it needs to keep and to release its leases.
enum class request_class { of_lease, other };
inline constexpr std::size_t request_classes = 2;

/// What is left in a bucket after a request.
struct bucket_level {
    bool admitted = true;
    std::size_t remaining = 0;
    std::chrono::nanoseconds until_full{0};
    std::chrono::nanoseconds retry_after{0};  ///< Of a request that was not admitted: until one is.
};

/// The level of one token bucket, by the generic cell rate algorithm: only the time at which the bucket is full again
/// is stored. A new bucket is full.
///
/// Threads: not safe.
class request_bucket {
  public:
    /// Takes a request out of the bucket if it has one.
    bucket_level take(const bucket_size& limit, time_point now) {
        const bucket_level before = level(limit, now);
        if (!before.admitted) return before;
        full_at_ = std::max(full_at_, now) + limit.interval;
        bucket_level after = level(limit, now);
        after.admitted = true;
        after.retry_after = {};
        return after;
    }
    /// Returns the level, and whether take() would admit a request.
    bucket_level level(const bucket_size& limit, time_point now) const {
        bucket_level out;
        // A limit that was lowered by a reload may leave the bucket emptier than empty.
        out.until_full =
            std::clamp(std::chrono::nanoseconds(full_at_ - now), std::chrono::nanoseconds(0), limit.time_to_fill());
        if (!limit.is_limited()) return out;
        out.remaining = static_cast<std::size_t>((limit.time_to_fill() - out.until_full) / limit.interval);
        out.admitted = out.remaining > 0;
        if (!out.admitted) out.retry_after = out.until_full + limit.interval - limit.time_to_fill();
        return out;
    }

  private:
    time_point full_at_{};
};

}  // namespace fencegate::limits
