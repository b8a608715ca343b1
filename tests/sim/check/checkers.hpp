#pragma once

#include <sim/world/context.hpp>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sim {

struct violation {
    checker by{};
    sim_time at{};
    std::string what;
};

/// Watches the whole world from outside and knows the real time. Told of everything as it happens; remembers the first
/// promise that was broken.
class checkers {
  public:
    /// What was complete when something began.
    using floors = std::array<std::uint64_t, sim_resources_max>;

    explicit checkers(context& ctx) : ctx_(ctx) {}

    const std::optional<violation>& found() const { return found_; }
    /// Of a mutation's run only the named checker counts.
    void only(checker c) { only_ = c; }

    // C1: tokens of a resource are unique, and a grant asked for after another was complete has the higher one.
    floors complete_by_now() const { return highest_complete_; }
    void grant_complete(resource_set set, sim_nonce nonce, std::uint64_t token, const floors& before);

    /// A majority was seen under it, whether or not its own attempt ever knew.
    void seen_complete(resource_set set, sim_nonce nonce, std::uint64_t token);

    // C2, C3: what the guard accepted never falls; units sold = units gone.
    void guard_accepted(std::uint32_t resource, std::uint64_t token);
    void stock_counted(std::uint32_t resource, std::uint64_t sold, std::uint64_t gone);

    // C4: no two leases valid at one time. `until` in real time, by the holder's clock.
    void lease_valid(resource_set set, sim_nonce nonce, sim_time until);
    /// The holder no longer counts on it from `until` on.
    void lease_valid_only(sim_nonce nonce, sim_time until);

    // C5: after healing, a lease on each resource within a bound.
    void not_granted_after_healing(std::uint32_t resource);

    // C5 for those who wait: granted, or told that it took too long.
    void waiter_forgotten(std::uint32_t client);

    // C6: a failed attempt that was undone everywhere leaves no key; no key lives longer than the longest ttl.
    void key_left(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, const char* why);

    /// Another hold on it was asked for: who gives its own back need not find the lease gone.
    void entering(sim_nonce nonce) { entered_.try_emplace(nonce, 0); }
    bool was_entered(sim_nonce nonce) const { return entered_.contains(nonce); }

    // C7: INSPECT and RENEW never say yes for T when a newer grant was complete before they began.
    void alive_seen(resource_set set, std::uint64_t token, const floors& before, const char* by);

    // C8: stamps on one node by different owners strictly increase, whatever it forgot (docs/protocol.md, "Proof").
    void stamped(std::uint32_t node, std::uint32_t resource, sim_nonce nonce, std::uint64_t token);

    // C9: within its validity, and while it has a hold left, a holder is never told that its lease is lost; unless a
    // node died or forgot since it last was told that all is well, or the attempt that took the lease settled on a
    // higher token after another call of the same owner had entered it under a lower one (README.md, "Findings").
    void told_lost(std::uint32_t client, sim_nonce nonce, std::uint64_t token, sim_time sure_since);
    void node_disturbed() { disturbed_ = ctx_.now(); }

  private:
    struct valid_lease {
        sim_nonce nonce;
        sim_time until;
    };
    struct stamp {
        sim_nonce nonce = 0;
        std::uint64_t token = 0;
    };
    void fail(checker by, std::string what);

    context& ctx_;
    std::optional<violation> found_;
    std::optional<checker> only_;
    sim_time disturbed_{-1};
    std::map<sim_nonce, std::uint64_t> entered_;  ///< With the highest token under which it was stamped since.
    floors highest_complete_{};
    std::array<std::map<std::uint64_t, sim_nonce>, sim_resources_max> tokens_;
    std::array<std::uint64_t, sim_resources_max> accepted_{};
    std::array<std::vector<valid_lease>, sim_resources_max> valid_;
    std::array<std::array<stamp, sim_resources_max>, sim_nodes_max> stamps_{};
};

}  // namespace sim
