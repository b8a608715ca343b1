#include <sim/world/mutations.hpp>

#include <array>

namespace sim {
namespace {

using m = mutation;
using c = checker;

constexpr std::array rows = {
    mutation_row{m::confirm_without_owner, "confirm_without_owner", c::tokens, "R3's test of the owner"},
    mutation_row{m::confirm_past_counter, "confirm_past_counter", c::tokens, "R3's eff <= T", "shared_counters"},
    mutation_row{m::epoch_zero, "epoch_zero", c::tokens, "R8's epochs: READMIT writes base 0"},
    mutation_row{m::renew_creates, "renew_creates", c::staleness, "RENEW's 'never creates a lease'"},
    mutation_row{m::renew_nonce_only, "renew_nonce_only", c::staleness, "RENEW's token == T", "forgetful", true},
    mutation_row{m::renew_below_base, "renew_below_base", c::staleness, "RENEW's T >= base", "forgetful"},
    mutation_row{m::inspect_nonce_only, "inspect_nonce_only", c::staleness, "INSPECT's token == T", "forgetful", true},
    mutation_row{m::inspect_below_base, "inspect_below_base", c::staleness, "INSPECT's T >= base", "forgetful"},
    mutation_row{m::top_up_ignores_counter, "top_up_ignores_counter", c::stamps,
                 "TOP-UP's test and update of the counter"},
    mutation_row{m::acquire_over_held, "acquire_over_held", c::exclusion, "R1's test that the lease is free"},
    mutation_row{m::separate_counters, "separate_counters", c::tokens,
                 "several resources: each counter is raised by 1 separately"},
    mutation_row{m::release_any_owner, "release_any_owner", c::exclusion,
                 "R7's test of the owner: a release ends whatever lease is there"},
    mutation_row{m::readmit_any_claim, "readmit_any_claim", c::tokens, "R8c's test of the claim and the marks",
                 "forgetful"},
    mutation_row{m::lease_without_ttl, "lease_without_ttl", c::liveness, "R1's PX"},
    mutation_row{m::hand_over_ignores_holds, "hand_over_ignores_holds", c::holds,
                 "HAND-OVER's test of the holds that are left"},
    mutation_row{m::hold_not_added, "hold_not_added", c::holds, "HOLD's id"},
    mutation_row{m::hold_on_one, "hold_on_one", c::holds, "HOLD's majority: one node is enough"},
    mutation_row{m::release_drops_holds, "release_drops_holds", c::holds, "RELEASE's test of the ids that are left"},
    mutation_row{m::undo_drops_holds, "undo_drops_holds", c::holds,
                 "the undo of an attempt removes its own hold only: it removes the holds of others too", nullptr, true},
    mutation_row{m::undo_ignores_repeats, "undo_ignores_repeats", c::holds,
                 "an attempt with an idempotency key is kept for a repeated request: it is undone", nullptr, true},
    mutation_row{m::undone_hold_keeps_key, "undone_hold_keeps_key", c::holds,
                 "the undo of a HOLD removes its idempotency key: a repeated request is answered as held", nullptr,
                 true},
    mutation_row{m::waiters_never_retry, "waiters_never_retry", c::liveness,
                 "waiters retry: neither a release nor their timer makes them try again"},
    mutation_row{m::cancelled_waiter_stays, "cancelled_waiter_stays", c::liveness,
                 "a cancelled waiter leaves the queue: it stays at its head"},
    mutation_row{m::skip_confirm, "skip_confirm", c::tokens, "the confirming round"},
    mutation_row{m::late_higher_counts, "late_higher_counts", c::tokens, "R4's 'exactly T' for late replies",
                 "short_leases"},
    mutation_row{m::stale_counts, "stale_counts", c::tokens, "R5's 'is no stamp'", "shared_counters"},
    mutation_row{m::early_draw, "early_draw", c::tokens, "R8b's 'after that'"},
    mutation_row{m::replay_on_reconnect, "replay_on_reconnect", c::tokens, "R9"},
    mutation_row{m::no_quarantine, "no_quarantine", c::exclusion, "R8's quarantine"},
    mutation_row{m::no_final_validity, "no_final_validity", c::exclusion, "R6's test just before answering"},
    mutation_row{m::validity_from_answer, "validity_from_answer", c::exclusion, "R6's 'since before the first send'"},
    mutation_row{m::no_drift_allowance, "no_drift_allowance", c::exclusion, "R6's 1 % of the ttl + 2 ms", "drifting"},
    mutation_row{m::no_undo, "no_undo", c::leftovers, "R7 after a failed attempt"},
    mutation_row{m::vote_unadmitted, "vote_unadmitted", c::tokens, "ADM: the node's test of the run id"},
    mutation_row{m::marks_not_compared, "marks_not_compared", c::tokens,
                 "FORGETTING IN ONE LIFE: the scripts' test of the marks"},
    mutation_row{m::one_epoch_per_process, "one_epoch_per_process", c::tokens,
                 "the register's life of a node: a process has one epoch, whatever data it loses"},
    mutation_row{m::sync_end_not_recorded, "sync_end_not_recorded", c::exclusion,
                 "the register records that a node no longer syncs every write", "ends_of_sync"},
    mutation_row{m::settings_at_start_ignored, "settings_at_start_ignored", c::exclusion,
                 "R8's 'no CONFIG SET counted' after a restart", "ends_of_sync"},
    mutation_row{m::draw_records_synced, "draw_records_synced", c::exclusion,
                 "R8's 'a draw has the register record whether the node syncs'", "ends_of_sync"},
    mutation_row{m::acquire_counts_silence, "acquire_counts_silence", c::tokens,
                 "R4's majority: a timeout counts as a yes"},
    mutation_row{m::renew_counts_silence, "renew_counts_silence", c::exclusion,
                 "RENEW's majority: a timeout counts as a yes"},
    mutation_row{m::hand_over_keeps_holder, "hand_over_keeps_holder", c::exclusion,
                 "HAND-OVER: the old holder continues to use the lease"},
    mutation_row{m::renew_shortens, "renew_shortens", c::exclusion, "RENEW never shortens the remaining time"},
    mutation_row{m::trusts_current_fsync, "trusts_current_fsync", c::exclusion,
                 "R8's record of how a node synced while it voted: only the current appendfsync counts"},
    mutation_row{m::guard_accepts_any, "guard_accepts_any", c::guard, "the guard's token >= fence"},
    mutation_row{m::guard_read_keeps_fence, "guard_read_keeps_fence", c::stock, "a fenced read raises the fence"},
};
static_assert(rows.size() + 1 == static_cast<std::size_t>(m::count_));

}  // namespace

std::span<const mutation_row> mutations() {
    return rows;
}

const mutation_row* find_mutation(std::string_view name) {
    for (const mutation_row& row : rows) {
        if (name == row.name) return &row;
    }
    return nullptr;
}

const char* to_string(checker value) {
    switch (value) {
        case c::tokens:
            return "C1 tokens";
        case c::guard:
            return "C2 guard";
        case c::stock:
            return "C3 stock";
        case c::exclusion:
            return "C4 exclusion";
        case c::liveness:
            return "C5 liveness";
        case c::leftovers:
            return "C6 leftovers";
        case c::staleness:
            return "C7 staleness";
        case c::stamps:
            return "C8 stamps";
        case c::holds:
            return "C9 holds";
    }
    return "unknown";
}

}  // namespace sim
