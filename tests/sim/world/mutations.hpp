#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sim {

/// The checkers. README.md says what each one checks.
enum class checker : std::uint8_t {
    tokens,     ///< C1
    guard,      ///< C2
    stock,      ///< C3
    exclusion,  ///< C4
    liveness,   ///< C5
    leftovers,  ///< C6
    staleness,  ///< C7
    stamps,     ///< C8
    holds,      ///< C9
};
const char* to_string(checker c);

/// A mutation leaves out one rule, inside the simulation only. It shows that the checkers can find a violation.
enum class mutation : std::uint8_t {
    none,
    // In the node.
    confirm_without_owner,
    confirm_past_counter,
    epoch_zero,
    renew_creates,
    renew_nonce_only,
    renew_below_base,
    inspect_nonce_only,
    inspect_below_base,
    top_up_ignores_counter,
    acquire_over_held,
    separate_counters,
    release_any_owner,
    readmit_any_claim,
    lease_without_ttl,
    renew_shortens,
    hand_over_ignores_holds,
    release_drops_holds,
    hold_not_added,
    // In the gateway and its clients.
    skip_confirm,
    late_higher_counts,
    stale_counts,
    early_draw,
    replay_on_reconnect,
    no_quarantine,
    no_final_validity,
    validity_from_answer,
    no_drift_allowance,
    no_undo,
    vote_unadmitted,
    marks_not_compared,
    one_epoch_per_process,
    sync_end_not_recorded,
    settings_at_start_ignored,
    draw_records_synced,
    acquire_counts_silence,
    renew_counts_silence,
    hand_over_keeps_holder,
    trusts_current_fsync,
    undo_drops_holds,
    hold_on_one,
    undo_ignores_repeats,
    undone_hold_keeps_key,
    waiters_never_retry,
    cancelled_waiter_stays,
    // In the guard.
    guard_accepts_any,
    guard_read_keeps_fence,
    count_,
};
struct mutation_row {
    mutation id;
    const char* name;
    checker caught_by;
    const char* left_out;
    const char* profile = nullptr;  ///< The profile of the runs that look for it; null: any.
    bool rare = false;              ///< Takes tens of thousands of seeds, so the suite leaves it out.
};
/// Returns every mutation with the checker that has to find it.
std::span<const mutation_row> mutations();
const mutation_row* find_mutation(std::string_view name);

}  // namespace sim
