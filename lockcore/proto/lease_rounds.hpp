#pragma once

#include <lockcore/lease.hpp>
#include <lockcore/types.hpp>
#include <proto/attempts.hpp>
#include <proto/wait_queues.hpp>

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
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
    /// Returns whether the lease is known to be valid with this token. The claims of a repeated request may have a
    /// token that its attempt had before it was complete.
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

/// The commands of one core about existing leases, each sent to all nodes: RENEW, HOLD, INSPECT, RELEASE and CLOSE.
///
/// Threads: not safe.
class lease_rounds {
  public:
    using continuation = round_attempt::continuation;

    /// `wake_mark`: that of the core. All arguments outlive this.
    lease_rounds(core_context& ctx, link_span links, const std::string& wake_mark, validity_memory& validities,
                 wait_queues& queues);

    /// Returns the arguments of a command about a lease.
    lease_call call_for(const lease_claims& claims) const;
    /// Runs a round, and UPGRADE if the lease counts on too few nodes but is known to be valid. `then`: is called once
    /// with the round, or with its repetition after the UPGRADE.
    void run(command_kind kind, lease_call call, lease_claims claims, continuation then);
    /// `kept`: the lease is renewed for its holder, as often as needed.
    void renew(lease_claims claims, milliseconds ttl, std::string origin, bool kept,
               std::function<void(result<lease>)> then);
    /// `watches`: leaves the wake mark of this core in the lease, so that the nodes notify it of the end.
    void inspect(lease_claims claims, std::function<void(result<lease>, const majority_round&)> then,
                 bool watches = false);
    /// Sends RELEASE or CLOSE and repeats it on the nodes that are not reached; nobody waits for the outcome.
    void send(command_kind kind, lease_call call, lease_claims claims);
    /// Returns a RELEASE of the hold that is not started.
    std::shared_ptr<round_attempt> prepare_release(const lease_claims& claims);

    /// Returns why a round has not done what was asked; empty if a majority did it. Says nothing of limits, which only
    /// RENEW and HOLD have, nor of other holds (CLOSE).
    ///
    /// In: `no_quorum`: the detail if too few nodes answered.
    std::optional<failure> find_failure(const majority_round& round, const lease_claims& claims,
                                        const char* no_quorum) const;
    /// Returns the lease as a caller gets it, with one hold, no renewals, and no number of nodes.
    lease make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until) const;
    /// Returns the lease with what a round says of it.
    lease make_lease(lease_claims claims, milliseconds ttl, validity_time valid_until,
                     const majority_round& round) const;

    /// Prevents further TOP-UPs for one hold of a lease; for all of its holds if `hold` is null.
    void stop_top_ups(const nonce& attempt, const hold_id* hold);
    void tick();

  private:
    void start(command_kind kind, lease_call call, lease_claims claims, bool may_upgrade, continuation then);
    /// Lets the lease count again on nodes that were restarted, and repeats the round.
    void upgrade(round_attempt& uncounted, continuation then);

    core_context& ctx_;
    link_span links_;
    const std::string& wake_mark_;
    validity_memory& validities_;
    wait_queues& queues_;
    round_repeater repeater_;
    /// Renewals in progress: a release prevents their TOP-UPs.
    std::unordered_multimap<nonce, std::weak_ptr<round_attempt>, nonce_hash> renewing_;
};

}  // namespace lockcore
