#pragma once

#include <lockcore/boot_clock.hpp>
#include <lockcore/lease.hpp>
#include <lockcore/result.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace lockcore {

struct nonce_hash {
    std::size_t operator()(const nonce& n) const { return std::hash<std::string_view>{}(n.str()); }
};

/// What a core knows of leases that were granted, extended or ended through it: until when they are valid, for UPGRADE;
/// and why they are lost, for the texts of later answers.
///
/// Threads: not safe.
/// Limits:  the validity of validities_max leases; the hashes of ended_max ids.
class validity_memory {
  public:
    static constexpr std::size_t validities_max = 65'536;
    static constexpr std::size_t ended_max = 16'384;

    /// A lease was granted or extended here.
    void remember(const lease_claims& claims, validity_time until);
    /// Returns whether the lease is known to be valid with this token. The claims of a repeated request may have a token
    /// that its attempt had before it was complete.
    bool is_valid(const lease_claims& claims, validity_time now) const;
    /// A call of this core released the hold of these claims. Its lease may live on.
    void hold_released(const lease_claims& claims) { add_ended(claims.hold.str()); }
    void lease_revoked(const lease_claims& claims) { add_ended(claims.attempt_id.str()); }
    /// A lease ended here or elsewhere.
    void lease_ended(const nonce& attempt) { validities_.erase(attempt); }
    void forget_expired(validity_time now);
    /// Returns errc::lease_lost, and says why a majority of the nodes does not hold the lease, or this hold of it.
    failure why_lost(const lease_claims& claims, validity_time now) const;

  private:
    struct known_validity {
        fencing_token token{};
        validity_time until{};
    };

    static std::size_t hash_of(std::string_view id) { return std::hash<std::string_view>{}(id); }
    void add_ended(std::string_view id);
    bool has_ended(std::string_view id) const { return ended_.contains(hash_of(id)); }

    std::unordered_map<nonce, known_validity, nonce_hash> validities_;
    std::unordered_set<std::size_t> ended_;  ///< Of the ids of released holds, and the nonces of revoked leases.
    std::deque<std::size_t> ended_in_order_;
};

}  // namespace lockcore
