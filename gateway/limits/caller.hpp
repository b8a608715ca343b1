#pragma once

#include <gateway/config/limits.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/domain/principal_share.hpp>
#include <gateway/limits/request_bucket.hpp>

#include <lockcore/invariant.hpp>

#include <boost/asio/ip/address.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace fencegate::limits {

/// What a principal has several of at a time.
enum class use {
    requests,         ///< Requests under way, with those that wait or stream.
    waiters,          ///< Calls that wait for a lease.
    streams,          ///< Streams of the history and kept leases.
    history_streams,  ///< Streams of the history.
    long_requests,    ///< Of the requests those that wait for a lease or stream.
};
inline constexpr std::size_t uses = 5;

/// The places of a principal whose limits do not say otherwise.
struct principal_shares {
    std::size_t requests = 0;
    std::size_t waiters = 0;
    std::size_t history_streams = 0;
};

/// One principal at this gateway: its limits, and what it uses of them.
///
/// Threads: safe.
class caller {
  public:
    explicit caller(std::string principal) : principal_(std::move(principal)) {}
    caller(const caller&) = delete;
    caller& operator=(const caller&) = delete;

    const std::string& principal() const { return principal_; }

    void set_limits(const principal_limits& limits, const principal_shares& shares);

    struct taken_request {
        bucket_size limit;
        bucket_level level;
    };
    /// Takes a request out of the token bucket of its class; empty if the rate has no limit.
    std::optional<taken_request> take_request(time_point now, request_class kind);

    std::size_t count(use kind) const { return count_of(kind).load(std::memory_order_relaxed); }
    std::size_t most(use kind) const { return most_of(kind).load(std::memory_order_relaxed); }
    /// The leases that the principal may hold; 0: no limit.
    std::size_t leases_max() const { return leases_max_.load(std::memory_order_relaxed); }

  private:
    friend class place;
    using counter = std::atomic<std::size_t>;
    const counter& count_of(use kind) const { return counts_[static_cast<std::size_t>(kind)]; }
    counter& count_of(use kind) { return counts_[static_cast<std::size_t>(kind)]; }
    const counter& most_of(use kind) const { return most_[static_cast<std::size_t>(kind)]; }

    const std::string principal_;
    std::array<counter, uses> counts_{};
    std::array<counter, uses> most_{};
    counter leases_max_{0};
    std::mutex mutex_;  ///< Guards the members below.
    bucket_size rate_;
    std::array<request_bucket, request_classes> buckets_;
};

/// One of a principal's places, from when it is taken until the destructor.
///
/// Threads: not safe; another thread may destroy it.
class place {
  public:
    place() = default;
    /// Takes a place. It is empty if the principal has all that it may have.
    place(std::shared_ptr<caller> of, use kind) : kind_(kind) {
        if (of->count_of(kind).fetch_add(1, std::memory_order_relaxed) < of->most(kind)) {
            caller_ = std::move(of);
        } else {
            of->count_of(kind).fetch_sub(1, std::memory_order_relaxed);
        }
    }
    place(place&& other) noexcept : caller_(std::move(other.caller_)), kind_(other.kind_) {}
    place& operator=(place&& other) noexcept {
        std::swap(caller_, other.caller_);
        std::swap(kind_, other.kind_);
        return *this;
    }
    ~place() {
        if (!caller_) return;
        const auto before = caller_->count_of(kind_).fetch_sub(1, std::memory_order_relaxed);
        LOCKCORE_INVARIANT(before > 0);
    }

    explicit operator bool() const { return caller_ != nullptr; }

  private:
    std::shared_ptr<caller> caller_;
    use kind_ = use::requests;
};

/// Returns the failure of a principal that has all its places of a kind.
failure no_place_failure(use kind);

/// An IPv4 address, or the /64 network of an IPv6 address, which one caller usually has.
using address_key = boost::asio::ip::address_v6::bytes_type;
address_key key_of(const boost::asio::ip::address& peer);

/// Counts the requests that wait for a lease or stream their answers, of all callers and of each address. They have at
/// most their share of the connections; the rest is for requests that are answered at once, such as renewals, releases
/// and writes.
///
/// Threads:  safe.
/// Lifetime: shared by its places.
class long_requests : public std::enable_shared_from_this<long_requests> {
  public:
    /// `connections_of_address` 0: no limit.
    long_requests(std::size_t connections, std::size_t connections_of_address)
        : most_(share_of(connections)), most_of_address_(share_of(connections_of_address)) {}

    /// Takes a place until the result is destroyed. Out: null if there is none.
    std::shared_ptr<void> take_place(const boost::asio::ip::address& peer);

  private:
    void return_place(const address_key& address);

    std::mutex mutex_;
    std::size_t count_ = 0;
    std::map<address_key, std::size_t> by_address_;
    const std::size_t most_, most_of_address_;
};

}  // namespace fencegate::limits
