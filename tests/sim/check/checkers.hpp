#pragma once

#include <sim/world/context.hpp>

#include <array>
#include <bitset>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace sim {

struct violation {
    checker found_by{};
    sim_time at{};
    std::string text;
};

/// Checks the promises of the protocol from outside the simulated parts, with the real time. The parts report each
/// event to it; it keeps the first violation.
class checkers {
  public:
    /// The highest complete tokens of the resources at the time a request began.
    struct token_floors {
        std::array<std::uint64_t, sim_resources_max> any{}, exclusive{};
        std::uint64_t& operator[](std::uint32_t r) { return any[r]; }
        const std::uint64_t& operator[](std::uint32_t r) const { return any[r]; }
    };

    explicit checkers(context& ctx) : ctx_(ctx) {}

    const std::optional<violation>& found() const { return found_; }
    /// Ignores the violations of all other checkers.
    void report_only(checker c) { only_ = c; }

    // C1: tokens of a resource are unique, but for those of leases that share it, and a grant that was requested after
    // another was complete has the higher one. A token is complete when a majority of the nodes was stamped with it
    // within 2 D of the first request: a gateway counts no reply that it reads later than D.
    token_floors highest_complete() const { return highest_complete_; }
    /// A gateway sent the first ACQUIRE of an attempt.
    void attempt_begun(resource_set set, sim_nonce nonce);
    /// A client was granted a lease: its token must be complete.
    void granted(resource_set set, sim_nonce nonce, std::uint64_t token);

    // C2, C3: the tokens that the guard accepts never fall; as many units were sold as are missing.
    void guard_accepted(std::uint32_t server, std::uint32_t resource, std::uint64_t token);
    void stock_counted(std::uint32_t resource, std::uint64_t sold, std::uint64_t gone);

    // C4: no two leases are valid at the same time, but those that share the resource. `until` is in real time,
    // computed from the holder's clock.
    void lease_valid(resource_set set, sim_nonce nonce, sim_time until);
    /// The holder does not use the lease after `until`.
    void lease_valid_only(sim_nonce nonce, sim_time until);

    // C5: after the faults end, each resource is granted within a bound.
    void not_granted_after_healing(std::uint32_t resource);

    /// Far more happened than in any other run: something is repeated without a delay.
    void run_does_not_end();

    // C5 for waiters: each is granted or answered at the end of its wait.
    void waiter_not_answered(std::uint32_t client);

    // C6: a failed attempt that was undone on all nodes leaves no key; no key lives longer than the longest ttl.
    void key_left(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, const char* reason);

    /// An attempt that was not granted must be undone before its lease expires.
    void attempt_not_undone(std::uint32_t node, sim_nonce nonce);
    /// Another hold of the lease was requested, so undoing the attempt may leave the lease with that hold.
    void hold_requested(sim_nonce nonce) { hold_request_tokens_.try_emplace(nonce, 0); }
    bool has_hold_request(sim_nonce nonce) const { return hold_request_tokens_.contains(nonce); }

    // C7: INSPECT and RENEW never report T as alive when a newer grant was complete before they began.
    // For a lease whose stamp was renewed (UPGRADE) this rests on the assumptions of exclusion,
    // and is not promised once somebody called for its end (docs/protocol.md, "Not promised").
    void lease_reported_alive(resource_set set, sim_nonce nonce, std::uint64_t token, const token_floors& before,
                              const char* command);
    /// Somebody called for the release of the last hold, or for the revocation.
    void end_requested(sim_nonce nonce) { end_requested_.insert(nonce); }

    // C8: stamps on one node by different owners strictly increase, whatever data it lost (docs/protocol-proof.md,
    // "Tokens"); of leases that share the resource they do not fall.
    // A lease whose stamp differs from its token is renewed by UPGRADE, or not counted yet.
    void stamped(std::uint32_t node, std::uint32_t resource, bool shared, sim_nonce nonce, std::uint64_t stamp,
                 std::uint64_t token);

    // C9: within the validity of a lease, and while a hold is left, its holder is never answered that the lease
    // is lost. Exceptions: a node had a fault since the last request whose answer confirmed the lease for this time;
    // the attempt raised its token after another call of the same owner had added a hold under the lower token;
    // or a late request of the attempt raised it on a node (tests/sim/README.md, "Accepted schedules").
    void lease_reported_lost(std::uint32_t client, sim_nonce nonce, std::uint64_t token, sim_time confirmed_since);
    void node_fault_injected() { last_node_fault_ = ctx_.now(); }
    sim_time last_node_fault() const { return last_node_fault_; }

    // C10: when close_to_new_holds was answered with `closed` to a client that goes on to release its hold, there is no
    // other hold, and nobody is answered another one, unless a node has a fault afterwards (or, where exclusion is not
    // promised, had one before), or a late renewal puts the lease back on a node that released it (docs/protocol.md,
    // "Not promised").
    void closed(sim_nonce nonce, const lockcore::hold_id& own);
    /// A client was answered that it has this hold, a further one or not, and may use it until then.
    void hold_answered(sim_nonce nonce, const lockcore::hold_id& id, sim_time until);
    void hold_released(sim_nonce nonce, const lockcore::hold_id& id);
    /// A script deleted the lease on this node.
    void lease_deleted(std::uint32_t node, sim_nonce nonce);
    /// A client was answered that it has a further hold, or again that it has one.
    void further_hold_answered(std::uint32_t client, sim_nonce nonce, const lockcore::hold_id& id);

    /// An operator revoked the lease: its holder's validity is not respected any more (C4, C9).
    void revoked(sim_nonce nonce);

    // C11: a PostgreSQL server that replaced another lets nothing in before its change of generation is finished,
    // and then no token that was complete before the change began.
    void server_live(std::uint32_t server) { databases_[server] = {false, highest_complete_, {}}; }
    void generation_begun(std::uint32_t server) { databases_[server].before = highest_complete_; }
    void generation_finished(std::uint32_t server, std::uint64_t floor);

    // C12: a write that a gateway acknowledged is in the newest database, or the gateway reports that it is lost.
    void lost_write_not_reported(std::uint32_t gateway);
    /// C5 for changes of the generation: after the faults end each gateway finishes them.
    void generation_not_settled(std::uint32_t gateway);

  private:
    struct valid_lease {
        sim_nonce nonce;
        sim_time until;
        bool shared;
    };
    struct stamp {
        sim_nonce nonce = 0;
        std::uint64_t number = 0;
        bool shared = false;
    };
    struct token_owner {
        sim_nonce nonce = 0;
        bool shared = false;
    };
    struct attempt {
        resource_set resources = 0;
        sim_time begun{};
        token_floors before{};                                        ///< When it began.
        std::map<std::uint64_t, std::bitset<sim_nodes_max>> stamped;  ///< By token: the nodes that were stamped.
        std::uint64_t late_token = 0;  ///< The highest that a late request wrote on a node.
    };
    bool is_complete(const attempt& a, std::uint64_t token) const;
    bool may_have_forgotten(sim_time since) const;
    void complete(const attempt& a, sim_nonce nonce, std::uint64_t token);
    void fail(checker found_by, std::string text);

    context& ctx_;
    std::optional<violation> found_;
    std::optional<checker> only_;
    sim_time last_node_fault_{-1};
    std::map<sim_nonce, std::uint64_t> hold_request_tokens_;  ///< Nonce and its highest stamped token since.
    std::unordered_map<sim_nonce, attempt> attempts_;
    struct closed_lease {
        sim_time since;
        lockcore::hold_id own;                    ///< The hold that is released.
        std::bitset<sim_nodes_max> deleted_on{};  ///< The nodes that deleted the lease afterwards.
        bool was_put_back = false;                ///< On one of these nodes.
    };
    std::map<sim_nonce, closed_lease> closed_;
    struct answered_hold {
        lockcore::hold_id id;
        sim_time since, until;
        bool released = false;
    };
    std::map<sim_nonce, std::vector<answered_hold>> holds_;
    std::set<sim_nonce> revoked_, upgraded_, end_requested_;
    token_floors highest_complete_{};
    std::array<std::map<std::uint64_t, token_owner>, sim_resources_max> tokens_;
    struct guarded_database {
        bool lets_in = true;
        token_floors before{};    ///< The highest complete tokens when its change of generation began.
        token_floors accepted{};  ///< The highest tokens that its guard accepted.
    };
    std::map<std::uint32_t, guarded_database> databases_;  ///< By PostgreSQL server.
    std::array<std::vector<valid_lease>, sim_resources_max> valid_;
    std::array<std::array<stamp, sim_resources_max>, sim_nodes_max> stamps_{};
};

}  // namespace sim
