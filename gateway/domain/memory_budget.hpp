#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/domain/principal_share.hpp>

#include <lockcore/invariant.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fencegate {

/// A request or answer counts against a budget when it is larger than this.
inline constexpr std::size_t uncounted_bytes_max = 64 * 1024;

/// A limit on the bytes that all requests, or all answers, hold together. An owner (a principal) holds at most three
/// quarters of it, so that no owner takes all.
///
/// Threads: safe.
class memory_budget {
  public:
    /// A reservation that was refused.
    struct refused_reservation {
        std::string owner;
        std::size_t bytes = 0;
        std::chrono::steady_clock::time_point refused_at;
    };

    explicit memory_budget(std::size_t bytes_max) : bytes_max_(bytes_max) {}
    memory_budget(const memory_budget&) = delete;
    memory_budget& operator=(const memory_budget&) = delete;

    /// Reserves the bytes if they fit.
    ///
    /// Out: whether they fit.
    bool try_reserve(const std::string& owner, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        if (!is_within_limits(owner, bytes)) {
            latest_refusal_ = refused_reservation{owner, bytes, std::chrono::steady_clock::now()};
            return false;
        }
        add(owner, bytes);
        return true;
    }
    /// Reserves the bytes even if they do not fit.
    void reserve(const std::string& owner, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        add(owner, bytes);
    }
    void release(const std::string& owner, std::size_t bytes) {
        if (bytes == 0) return;
        const std::lock_guard lock(mutex_);
        LOCKCORE_INVARIANT(used_ >= bytes);
        used_ -= bytes;
        by_owner_.remove(owner, bytes);
    }

    bool fits(const std::string& owner, std::size_t bytes) const {
        const std::lock_guard lock(mutex_);
        return is_within_limits(owner, bytes);
    }
    /// Whether the bytes would exceed the owner's share, so that only the release of the owner's own bytes can help.
    bool exceeds_share(const std::string& owner, std::size_t bytes) const {
        const std::lock_guard lock(mutex_);
        return by_owner_.used_by(owner) + bytes > share_of(bytes_max_);
    }
    /// Returns the latest reservation that was refused; empty where callers have had the time to repeat it.
    std::optional<refused_reservation> latest_refusal(std::chrono::steady_clock::time_point now) const {
        const std::lock_guard lock(mutex_);
        if (!latest_refusal_ || now - latest_refusal_->refused_at > std::chrono::seconds(2)) return std::nullopt;
        return latest_refusal_;
    }

    std::size_t used() const {
        const std::lock_guard lock(mutex_);
        return used_;
    }
    std::size_t bytes_max() const { return bytes_max_; }

  private:
    bool is_within_limits(const std::string& owner, std::size_t bytes) const {
        return used_ + bytes <= bytes_max_ && by_owner_.used_by(owner) + bytes <= share_of(bytes_max_);
    }
    void add(const std::string& owner, std::size_t bytes) {
        used_ += bytes;
        by_owner_.add(owner, bytes);
    }

    const std::size_t bytes_max_;
    mutable std::mutex mutex_;
    std::size_t used_ = 0;
    principal_uses by_owner_;
    std::optional<refused_reservation> latest_refusal_;
};

/// The budgets for a gateway's request bodies and answers: http.bodies_max_bytes and http.answers_max_bytes.
struct memory_budgets {
    memory_budgets(std::size_t bodies_max, std::size_t answers_max) : bodies(bodies_max), answers(answers_max) {}
    memory_budget bodies;
    memory_budget answers;
};

/// Bytes reserved from a budget; the destructor releases them.
///
/// Threads:  not safe; another thread may destroy it.
/// Lifetime: the budget outlives it.
class reserved_memory {
  public:
    reserved_memory(memory_budget& budget, std::string owner) : budget_(budget), owner_(std::move(owner)) {}
    ~reserved_memory() {
        if (bytes_ > 0) budget_.release(owner_, bytes_);
    }
    reserved_memory(const reserved_memory&) = delete;
    reserved_memory& operator=(const reserved_memory&) = delete;

    /// Reserves `more` further bytes if they fit.
    ///
    /// Out: whether they fit.
    bool try_grow(std::size_t more) {
        if (!budget_.try_reserve(owner_, more)) return false;
        bytes_ += more;
        return true;
    }
    void grow(std::size_t more) {
        budget_.reserve(owner_, more);
        bytes_ += more;
    }
    std::size_t bytes() const { return bytes_; }

  private:
    memory_budget& budget_;
    const std::string owner_;
    std::size_t bytes_ = 0;
};

inline failure answers_budget_failure(std::size_t bytes) {
    return make_failure(errc::overloaded,
                        "Answers that are being made, or that their callers have not taken yet, have used up "
                        "http.answers_max_bytes or this caller's three quarters of it; this one has " +
                            std::to_string(bytes) + " bytes. Nothing was changed. Ask again, or for less at a time.");
}

inline failure bodies_budget_failure() {
    return make_failure(errc::overloaded,
                        "Request bodies have used up http.bodies_max_bytes or this caller's three quarters of it. "
                        "Nothing was done; send it again, or less at a time.");
}

}  // namespace fencegate
