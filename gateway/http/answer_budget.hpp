#pragma once

#include <atomic>
#include <cstddef>

namespace fencegate::http {

/// The bytes of all answers that wait for their callers to take them, over all threads (http.answers_max_bytes).
///
/// Threads: any.
class answer_budget {
  public:
    explicit answer_budget(std::size_t bytes_max) : bytes_max_(bytes_max) {}

    /// False if that many bytes do not fit.
    bool try_reserve(std::size_t bytes) {
        std::size_t used = used_.load(std::memory_order_relaxed);
        do {
            if (bytes > bytes_max_ || used > bytes_max_ - bytes) return false;
        } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
        return true;
    }
    /// Counts them in any case.
    void reserve(std::size_t bytes) { used_.fetch_add(bytes, std::memory_order_relaxed); }
    void release(std::size_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  private:
    const std::size_t bytes_max_;
    std::atomic<std::size_t> used_{0};
};

}  // namespace fencegate::http
