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
    mutation_row{m::renew_creates, "renew_creates", c::sight, "RENEW's 'never creates a lease'"},
    mutation_row{m::renew_nonce_only, "renew_nonce_only", c::sight, "RENEW's token == T", "forgetful", true},
    mutation_row{m::renew_below_base, "renew_below_base", c::sight, "RENEW's T >= base", "forgetful"},
    mutation_row{m::inspect_nonce_only, "inspect_nonce_only", c::sight, "INSPECT's token == T", "forgetful", true},
    mutation_row{m::inspect_below_base, "inspect_below_base", c::sight, "INSPECT's T >= base", "forgetful"},
    mutation_row{m::top_up_raw, "top_up_raw", c::stamps, "TOP-UP's counter: writes (nonce, T) as it is"},
    mutation_row{m::acquire_over_held, "acquire_over_held", c::exclusion, "R1's test that the lease is free"},
    mutation_row{m::counters_apart, "counters_apart", c::tokens, "several resources: each counter + 1 by itself"},
    mutation_row{m::release_anybodys, "release_anybodys", c::exclusion,
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
                 "'its own hold, and no more': the undo of an attempt takes the holds of others with it", nullptr,
                 true},
    mutation_row{m::undo_forgets_repeats, "undo_forgets_repeats", c::holds,
                 "leaving an attempt with an idempotency key to whoever repeats it: it is undone", nullptr, true},
    mutation_row{m::hold_leaves_key, "hold_leaves_key", c::holds,
                 "forgetting the key of a HOLD that was taken back: it is answered as if it stood", nullptr, true},
    mutation_row{m::waiters_never_wake, "waiters_never_wake", c::liveness,
                 "waking those who wait: neither the end of a lease nor the time wakes them"},
    mutation_row{m::leaver_keeps_place, "leaver_keeps_place", c::liveness,
                 "leaving the queue: who went away stays its head"},
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
    mutation_row{m::epoch_of_process, "epoch_of_process", c::tokens,
                 "the register's life: a process has one epoch, whatever it forgets"},
    mutation_row{m::sync_end_not_kept, "sync_end_not_kept", c::exclusion,
                 "the register keeps that a node stopped to sync", "ends_of_sync"},
    mutation_row{m::acquire_over_silence, "acquire_over_silence", c::tokens, "R4's majority: silence is consent"},
    mutation_row{m::renew_over_silence, "renew_over_silence", c::exclusion, "RENEW's majority: silence is consent"},
    mutation_row{m::hand_over_keeps_old, "hand_over_keeps_old", c::exclusion, "HAND-OVER: the old holder goes on"},
    mutation_row{m::renew_cuts, "renew_cuts", c::exclusion, "RENEW's 'never cuts the time that is left'"},
    mutation_row{m::trusts_fsync_of_today, "trusts_fsync_of_today", c::exclusion,
                 "R8's record of how a node synced while it voted: today's appendfsync alone counts"},
    mutation_row{m::guard_open, "guard_open", c::guard, "the guard's token >= fence"},
    mutation_row{m::guard_forgets, "guard_forgets", c::stock, "the guard's raising of the fence by a read"},
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

const char* to_string(checker which) {
    switch (which) {
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
        case c::sight:
            return "C7 sight";
        case c::stamps:
            return "C8 stamps";
        case c::holds:
            return "C9 holds";
    }
    return "unknown";
}

}  // namespace sim
