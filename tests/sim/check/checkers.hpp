#pragma once

#include <sim/world/context.hpp>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sim {

struct violation {
    checker found_by{};
    sim_time at{};
    std::string text;
};

/// Checks the promises of the protocol from outside the simulated parts, with the real time. The parts report each
/// event to it; it keeps the first violation. README.md describes C1 to C9.
class checkers {
  public:
    /// The highest complete token of each resource at the time a request began.
    using token_floors = std::array<std::uint64_t, sim_resources_max>;

    explicit checkers(context& ctx) : ctx_(ctx) {}

    const std::optional<violation>& found() const { return found_; }
    /// Ignores the violations of all other checkers.
    void report_only(checker c) { only_ = c; }

    // C1: tokens of a resource are unique, and a grant that was requested after another was complete
    // has the higher one.
    token_floors highest_complete() const { return highest_complete_; }
    void grant_complete(resource_set set, sim_nonce nonce, std::uint64_t token, const token_floors& before);

    /// A majority was seen to hold the lease, whether or not its own attempt learned of it.
    void lease_seen_on_majority(resource_set set, sim_nonce nonce, std::uint64_t token);

    // C2, C3: the tokens that the guard accepts never fall; as many units were sold as are missing.
    void guard_accepted(std::uint32_t resource, std::uint64_t token);
    void stock_counted(std::uint32_t resource, std::uint64_t sold, std::uint64_t gone);

    // C4: no two leases are valid at the same time. `until` is in real time, computed from the holder's clock.
    void lease_valid(resource_set set, sim_nonce nonce, sim_time until);
    /// The holder does not use the lease after `until`.
    void lease_valid_only(sim_nonce nonce, sim_time until);

    // C5: after the faults end, each resource is granted within a bound.
    void not_granted_after_healing(std::uint32_t resource);

    // C5 for waiters: each is granted or answered at the end of its wait.
    void waiter_not_answered(std::uint32_t client);

    // C6: a failed attempt that was undone on all nodes leaves no key; no key lives longer than the longest ttl.
    void key_left(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, const char* reason);

    /// Another hold of the lease was requested, so undoing the attempt may leave the lease with that hold.
    void hold_requested(sim_nonce nonce) { hold_request_tokens_.try_emplace(nonce, 0); }
    bool has_hold_request(sim_nonce nonce) const { return hold_request_tokens_.contains(nonce); }

    // C7: INSPECT and RENEW never report T as alive when a newer grant was complete before they began.
    void lease_reported_alive(resource_set set, std::uint64_t token, const token_floors& before, const char* command);

    // C8: stamps on one node by different owners strictly increase, whatever data it lost (docs/protocol.md, "Proof").
    void stamped(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, std::uint64_t token);

    // C9: within the validity of a lease, and while a hold is left, its holder is never answered that the lease
    // is lost. Exceptions: a node had a fault since the request that last confirmed the lease, or the attempt
    // raised its token after another call of the same owner had added a hold under the lower token
    // (tests/sim/README.md, "Findings").
    void lease_reported_lost(std::uint32_t client, sim_nonce nonce, std::uint64_t token, sim_time confirmed_since);
    void node_fault_injected() { last_node_fault_ = ctx_.now(); }

  private:
    struct valid_lease {
        sim_nonce nonce;
        sim_time until;
    };
    struct stamp {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
    };
    void fail(checker found_by, std::string text);

    context& ctx_;
    std::optional<violation> found_;
    std::optional<checker> only_;
    sim_time last_node_fault_{-1};
    std::map<sim_nonce, std::uint64_t> hold_request_tokens_;  ///< Nonce and its highest stamped token since.
    token_floors highest_complete_{};
    std::array<std::map<std::uint64_t, sim_nonce>, sim_resources_max> tokens_;
    std::array<std::uint64_t, sim_resources_max> accepted_{};
    std::array<std::vector<valid_lease>, sim_resources_max> valid_;
    std::array<std::array<stamp, sim_resources_max>, sim_nodes_max> stamps_{};
};

}  // namespace sim
