#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

namespace fencegate::runtime {

/// Bounds how many log lines of a kind are written in a second, so that a flood of them fills neither the disk nor the
/// time of the threads that write them.
///
/// Threads: any.
class line_limit {
  public:
    using clock = std::chrono::steady_clock;

    explicit line_limit(std::uint64_t most_in_a_second) : most_(most_in_a_second) {}

    /// Counts a line.
    ///
    /// Out: empty if the line is to be left out; else how many were left out since the last one that was not.
    std::optional<std::uint64_t> admit(clock::time_point now) {
        const std::lock_guard lock(mutex_);
        if (now - begun_ >= std::chrono::seconds(1)) {
            begun_ = now;
            written_ = 0;
        }
        if (written_ == most_) {
            ++left_out_;
            return std::nullopt;
        }
        ++written_;
        return std::exchange(left_out_, 0);
    }

  private:
    const std::uint64_t most_;
    std::mutex mutex_;
    clock::time_point begun_{};
    std::uint64_t written_ = 0, left_out_ = 0;
};

}  // namespace fencegate::runtime
