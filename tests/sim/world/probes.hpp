#pragma once

#include <proto/command.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sim {

/// Rare paths. A run counts how often it takes each of them; a suite of seeds that never takes a path proves nothing
/// about it.
enum class probe : std::uint8_t {
    granted,
    validity_used_up,
    locked,
    no_quorum,
    two_grants_overlapped,
    quarantined,
    first_admission,
    draw_repeated,
    draw_failed,
    draw_answer_lost,
    readmit_ok,
    readmit_gone,
    readmit_already,
    fast_readmission_begun,
    leases_installed,
    lease_upgraded,
    not_admitted_found,
    script_missing,
    node_kept_data,
    node_lost_data,
    node_rolled_back,
    node_loaded_older_file,
    old_lease_survived_readmission,
    node_flushed,
    node_data_replaced,
    sync_ended,
    fsync_switched,
    connection_dropped,
    request_outlived_connection,
    request_replayed,
    renewed,
    renewed_for_less,
    renew_lost,
    renewals_exhausted,
    kept,
    keep_lost,
    keep_exhausted,
    inspected_yes,
    inspected_lost,
    released,
    release_lost,
    hold_added,
    hold_released,
    released_twice,
    token_raised_after_hold,
    lease_closed,
    lease_not_closed,
    release_with_seal_repeated,
    lease_found,
    found_no_lease,
    several_granted,
    lease_shared,
    repeat_answered,
    repeated_elsewhere,
    waiter_granted,
    waiter_timed_out,
    call_cancelled,
    request_cancelled,
    own_grant_cancelled,
    lease_expired_unnoticed,
    gateway_crashed_with_calls,
    gateway_crashed_with_waiters,
    gateway_paused_past_ttl,
    stale_read_refused,
    stale_write_refused,
    write_outcome_unknown,
    release_message_received,
    release_message_lost,
    clock_jumped,
    database_promoted,
    dump_loaded,
    snapshot_put_back,
    replaced_during_change,
    change_continued,
    change_finished,
    announcement_behind,
    announced_to_unadmitted,
    refused_by_generation,
    refused_by_floor,
    draw_refused,
    replaced_server_reached,
    replaced_server_refused,
    replaced_server_found,
    lost_write_reported,
    count_,
};
inline constexpr std::size_t probe_count = static_cast<std::size_t>(probe::count_);
const char* to_string(probe p);

/// Counts probes, the commands that gateways sent, and the answers of the scripts.
class probe_counts {
  public:
    void hit(probe p) { ++counts_[static_cast<std::size_t>(p)]; }
    void sent(lockcore::command_kind kind) { ++sent_[static_cast<std::size_t>(kind)]; }
    void answered(lockcore::command_kind kind, lockcore::reply_status status) {
        ++answered_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(status)];
    }
    void add(const probe_counts& counts);
    std::uint64_t of(probe p) const { return counts_[static_cast<std::size_t>(p)]; }

    using rows = std::vector<std::pair<std::string, std::uint64_t>>;
    /// Returns every count with its name; of commands and answers those that the protocol has.
    rows list() const;

  private:
    static constexpr std::size_t statuses = 14;
    std::array<std::uint64_t, probe_count> counts_{};
    std::array<std::uint64_t, lockcore::command_kinds> sent_{};
    std::array<std::array<std::uint64_t, statuses>, lockcore::command_kinds> answered_{};
};

}  // namespace sim
