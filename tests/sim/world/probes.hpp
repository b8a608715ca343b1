#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sim {

/// Rare paths. A run counts how often it takes each of them; a suite of seeds that never takes a path proves nothing
/// about it.
enum class probe : std::uint8_t {
    granted_in_one_round,
    confirm_round,
    raised_by_stale,
    raised_to_nodes_ahead,
    late_reply_equal,
    late_reply_higher,
    late_reply_lower,
    late_reply_after_newer_grant,
    confirm_after_grant,
    late_confirm_counted,
    thin_majority,
    validity_used_up,
    unwanted_grant_undone,
    locked,
    no_quorum,
    undo_after_timeout,
    undone_cleanly,
    two_grants_overlapped,
    quarantined,
    quarantine_skipped,
    first_admission,
    draw_repeated,
    draw_failed,
    draw_answer_lost,
    readmit_ok,
    readmit_gone,
    readmit_already,
    not_admitted_found,
    node_kept_data,
    node_lost_data,
    node_rolled_back,
    node_loaded_older_file,
    old_lease_survived_readmission,
    node_flushed,
    node_data_replaced,
    sync_ended,
    admission_deleted,
    fsync_switched,
    node_reviewed,
    node_timed_out,
    connection_dropped,
    request_outlived_connection,
    hint_used,
    bucket_shared_by_grants,
    renewed,
    renewed_for_less,
    renew_lost,
    renew_no_quorum,
    renewals_exhausted,
    top_up_counted,
    top_up_not_counted,
    top_up_refused,
    top_up_found_lease,
    inspected_yes,
    inspected_lost,
    inspected_after_newer_grant,
    released,
    release_lost,
    hand_over_ok,
    hand_over_failed,
    several_granted,
    several_refused,
    lease_expired_unnoticed,
    gateway_crashed_with_attempts,
    gateway_paused_past_ttl,
    stale_read_refused,
    stale_write_refused,
    write_outcome_unknown,
    handed_to_waiter,
    hand_over_other_holds,
    previous_released,
    hold_added,
    hold_released,
    released_twice,
    hold_undone,
    hold_added_before_grant,
    token_raised_after_hold,
    repeat_answered,
    left_for_repeat,
    waiter_granted,
    waiter_timed_out,
    waiter_cancelled,
    waited_behind_another,
    release_message_received,
    release_message_lost,
    gateway_crashed_with_waiters,
    clock_jumped,
    count_,
};
inline constexpr std::size_t probe_count = static_cast<std::size_t>(probe::count_);
const char* to_string(probe p);

class probe_counts {
  public:
    void hit(probe p) { ++counts_[static_cast<std::size_t>(p)]; }
    std::uint64_t of(probe p) const { return counts_[static_cast<std::size_t>(p)]; }
    void add(const probe_counts& counts) {
        for (std::size_t i = 0; i < probe_count; ++i)
            counts_[i] += counts.counts_[i];
    }

  private:
    std::array<std::uint64_t, probe_count> counts_{};
};

}  // namespace sim
