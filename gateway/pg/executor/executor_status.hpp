#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace fencegate::pg {

/// Counts batches by the number of their writes, in powers of two: the n-th count has the batches of up to 2^n writes.
///
/// Threads: safe.
class batch_sizes {
  public:
    static constexpr std::size_t classes = 7;  ///< 1, 2, 4, … 64

    void count(std::size_t writes) {
        if (writes == 0) return;
        const auto n = std::min<std::size_t>(std::bit_width(writes - 1), classes - 1);
        counts_[n].fetch_add(1, std::memory_order_relaxed);
        writes_.fetch_add(writes, std::memory_order_relaxed);
    }
    std::uint64_t counted(std::size_t n) const { return counts_[n].load(std::memory_order_relaxed); }
    std::uint64_t writes() const { return writes_.load(std::memory_order_relaxed); }

  private:
    std::array<std::atomic<std::uint64_t>, classes> counts_{};
    std::atomic<std::uint64_t> writes_{0};
};

/// The workers of a database at one moment.
struct executor_status {
    std::size_t workers = 0;       ///< Write workers; workers that connect only when they are needed do not count.
    std::size_t disconnected = 0;  ///< Write workers whose last attempt to connect failed.
    std::size_t busy = 0;          ///< Write workers with work under way or queued.
    std::size_t queued = 0, queue_max = 0;
};

}  // namespace fencegate::pg
