#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sim {

/// What the checkers watch. README.md says what each one proves.
enum class checker : std::uint8_t {
    tokens,     ///< C1
    guard,      ///< C2
    stock,      ///< C3
    exclusion,  ///< C4
    liveness,   ///< C5
    leftovers,  ///< C6
    sight,      ///< C7
    stamps,     ///< C8
    holds,      ///< C9
};
const char* to_string(checker c);

/// One rule left out, inside the simulation only: a checker that never finds anything would find nothing here either.
enum class mutation : std::uint8_t {
    none,
    // The node's side.
    confirm_without_owner,
    confirm_past_counter,
    epoch_zero,
    renew_creates,
    renew_nonce_only,
    renew_below_base,
    inspect_nonce_only,
    inspect_below_base,
    top_up_raw,
    acquire_over_held,
    counters_apart,
    release_anybodys,
    readmit_any_claim,
    lease_without_ttl,
    renew_cuts,
    hand_over_ignores_holds,
    release_drops_holds,
    hold_not_added,
    // The gateway's side.
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
    epoch_of_process,
    sync_end_not_kept,
    acquire_over_silence,
    renew_over_silence,
    hand_over_keeps_old,
    trusts_fsync_of_today,
    undo_drops_holds,
    hold_on_one,
    undo_forgets_repeats,
    hold_leaves_key,
    waiters_never_wake,
    leaver_keeps_place,
    // The guard's side.
    guard_open,
    guard_forgets,
    count_,
};
struct mutation_row {
    mutation what;
    const char* name;
    checker caught_by;
    const char* left_out;
    const char* profile = nullptr;  ///< The kind of world in which it is looked for; null: any.
    bool rare = false;              ///< Takes tens of thousands of seeds: not looked for in the suite.
};
/// Every mutation, with the checker that has to catch it.
std::span<const mutation_row> mutations();
const mutation_row* find_mutation(std::string_view name);

}  // namespace sim
