#pragma once

#include <gateway/config/limits.hpp>
#include <gateway/domain/failure.hpp>
#include <gateway/limits/caller.hpp>
#include <gateway/limits/request_bucket.hpp>

#include <boost/asio/ip/address.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::limits {

/// The most recently used entries by key. A new entry replaces the one that was unused for longest.
///
/// Threads: not safe.
/// Limits:  `entries_max`; more only while more of them are in use.
template <class Key, class Value, class Hash = std::hash<Key>>
class recent_map {
  public:
    explicit recent_map(std::size_t entries_max) : entries_max_(entries_max) {}

    /// Returns the entry of the key, which it adds if there is none. `is_in_use`: whether an entry must stay.
    template <class IsInUse>
    Value& find_or_add(const Key& key, IsInUse is_in_use) {
        if (const auto found = by_key_.find(key); found != by_key_.end()) {
            entries_.splice(entries_.end(), entries_, found->second);
            return found->second->second;
        }
        if (entries_.size() >= entries_max_) make_space(is_in_use);
        entries_.emplace_back(key, Value());
        by_key_.emplace(key, std::prev(entries_.end()));
        return entries_.back().second;
    }
    Value& find_or_add(const Key& key) {
        return find_or_add(key, [](const Value&) { return false; });
    }

    template <class Visit>
    void for_each(Visit visit) {
        for (auto& [key, value] : entries_)
            visit(value);
    }

    std::size_t size() const { return entries_.size(); }

  private:
    /// Entries in use that are looked at for one that is not.
    static constexpr std::size_t tries_max = 8;

    template <class IsInUse>
    void make_space(IsInUse is_in_use) {
        for (std::size_t tries = 0; tries < tries_max; ++tries) {
            const auto oldest = entries_.begin();
            if (!is_in_use(oldest->second)) {
                by_key_.erase(oldest->first);
                entries_.erase(oldest);
                return;
            }
            entries_.splice(entries_.end(), entries_, oldest);
        }
    }

    using entry = std::pair<const Key, Value>;
    const std::size_t entries_max_;
    std::list<entry> entries_;  ///< The least recently used first.
    std::unordered_map<Key, typename std::list<entry>::iterator, Hash> by_key_;
};

/// The values of the header fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers). Empty without
/// a limit.
struct rate_fields {
    std::string policy, state;

    bool empty() const { return policy.empty(); }
    void add(std::string_view name, const bucket_size& limit, const bucket_level& level);
};

/// Why a request was refused.
enum class refusal { address_rate, failed_authentications, principal_rate, requests, waiters, streams, leases };
inline constexpr std::array all_refusals{refusal::address_rate,   refusal::failed_authentications,
                                         refusal::principal_rate, refusal::requests,
                                         refusal::waiters,        refusal::streams,
                                         refusal::leases};
std::string_view to_string(refusal kind);

/// Decides whether an address or a principal may send a request, and counts what principals use. It outlives reloads of
/// the configuration: set_limits() changes the limits and keeps the counts.
///
/// Threads: safe.
/// Limits:  addresses_max addresses and callers_max principals are remembered, the most recent ones; one that returns
///          after it was left out begins with a full bucket.
class limiter {
  public:
    static constexpr std::size_t addresses_max = 65'536;
    static constexpr std::size_t callers_max = 65'536;

    /// `places`: what all principals share. `one_principal`: there is no other, so that it may have all of them instead
    /// of its share. `connections_of_address`: the connections that one address may have; 0: no limit.
    limiter(const limits_config& limits, const principal_shares& places, bool one_principal,
            std::size_t connections_of_address = 0);
    limiter(const limiter&) = delete;
    limiter& operator=(const limiter&) = delete;

    void set_limits(const limits_config& limits, bool one_principal);

    /// Counts a request of an address. Adds the fields of its answer.
    ///
    /// Errors: errc::too_many_requests.
    result<void> admit_address(const boost::asio::ip::address& peer, time_point now, rate_fields& fields,
                               request_class kind = request_class::other);
    /// Returns whether a credential may be verified. It may not while too many credentials of the address were invalid,
    /// unless this one was valid at this address before.
    ///
    /// Errors: errc::too_many_requests.
    result<void> admit_credential(const boost::asio::ip::address& peer, std::string_view credential, time_point now);
    /// Notes that a credential of `principal` is valid.
    void note_valid_credential(const boost::asio::ip::address& peer, std::string_view credential,
                               std::string_view principal);
    /// Counts a credential that is not valid.
    void note_failed_authentication(const boost::asio::ip::address& peer, std::string_view credential, time_point now);
    /// Counts a request of an authenticated principal. Adds the fields of its answer.
    ///
    /// Errors: errc::too_many_requests.
    result<void> admit_principal(caller& principal, time_point now, rate_fields& fields,
                                 request_class kind = request_class::other);

    std::shared_ptr<caller> caller_of(const std::string& principal);

    /// Counts a request that is about to wait for a lease or to stream its answer, until the result is destroyed.
    ///
    /// Out: null if such requests have their share of all connections, of those of the address, or of the requests of
    ///      the principal.
    std::shared_ptr<void> admit_long_request(const std::shared_ptr<caller>& principal,
                                             const boost::asio::ip::address& peer);

    void count_refusal(refusal kind) {
        refused_[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
    }
    std::uint64_t refused(refusal kind) const {
        return refused_[static_cast<std::size_t>(kind)].load(std::memory_order_relaxed);
    }
    bool has_one_principal() const { return one_principal_.load(std::memory_order_relaxed); }

  private:
    /// Credentials of one address that are remembered as valid.
    static constexpr std::size_t credentials_max = 256;
    static constexpr std::size_t shard_count = 16;

    /// Hashes of a credential and of its principal.
    struct valid_credential {
        std::uint64_t credential = 0, principal = 0;
    };
    struct address_entry {
        std::array<request_bucket, request_classes> requests;
        request_bucket failures;
        std::vector<valid_credential> valid_credentials;  ///< The oldest first.
    };
    /// Removes the oldest credential of the principal that has most; of `preferred`, if no other has more.
    static void make_space(std::vector<valid_credential>& known, std::uint64_t preferred);
    struct address_hash {
        std::size_t operator()(const address_key& key) const;
    };
    struct shard {
        std::mutex mutex;
        bucket_size requests, failures;
        recent_map<address_key, address_entry, address_hash> addresses{addresses_max / shard_count};
    };
    shard& shard_of(const address_key& key);

    const principal_shares places_;
    const std::shared_ptr<long_requests> long_requests_;
    std::array<shard, shard_count> shards_;
    /// Without a limit, no map is used.
    std::atomic<bool> limits_requests_{false}, limits_failures_{false};
    std::atomic<bool> one_principal_{false};
    std::mutex mutex_;  ///< Guards the limits and the principals.
    limits_config limits_;
    principal_shares shares_;
    recent_map<std::string, std::shared_ptr<caller>> callers_{callers_max};
    std::array<std::atomic<std::uint64_t>, all_refusals.size()> refused_{};
};

}  // namespace fencegate::limits
