#include <sim/world/probes.hpp>

namespace sim {
namespace {

using kind = lockcore::command_kind;
using status = lockcore::reply_status;

struct expected_answers {
    kind command;
    const char* name;
    std::vector<status> answers;
};

const std::vector<expected_answers>& expected() {
    static const std::vector<expected_answers> rows = {
        {kind::renew, "RENEW", {status::ok, status::lost, status::exhausted}},
        {kind::hold, "HOLD", {status::ok, status::lost, status::exhausted}},
        {kind::top_up, "TOP-UP", {status::ok, status::held, status::lost}},
        {kind::close, "CLOSE", {status::ok, status::lost, status::other_holds}},
        {kind::release, "RELEASE", {status::ok, status::lost}},
        {kind::acquire, "ACQUIRE", {status::ok, status::held, status::own, status::other_holds}},
        {kind::confirm, "CONFIRM", {status::ok, status::lost, status::stale}},
        {kind::inspect, "INSPECT", {status::ok, status::lost}},
        {kind::look, "LOOK", {status::ok, status::lost}},
        {kind::undo, "undo", {status::ok, status::lost}},
    };
    return rows;
}

}  // namespace

const char* to_string(probe p) {
    constexpr std::array<const char*, probe_count> names = {
        "granted",
        "validity_used_up",
        "locked",
        "no_quorum",
        "two_grants_overlapped",
        "quarantined",
        "first_admission",
        "draw_repeated",
        "draw_failed",
        "draw_answer_lost",
        "readmit_ok",
        "readmit_gone",
        "readmit_already",
        "fast_readmission_begun",
        "leases_installed",
        "lease_upgraded",
        "not_admitted_found",
        "script_missing",
        "node_kept_data",
        "node_lost_data",
        "node_rolled_back",
        "node_loaded_older_file",
        "old_lease_survived_readmission",
        "node_flushed",
        "node_data_replaced",
        "sync_ended",
        "fsync_switched",
        "connection_dropped",
        "request_outlived_connection",
        "request_replayed",
        "renewed",
        "renewed_for_less",
        "renew_lost",
        "renewals_exhausted",
        "kept",
        "keep_lost",
        "keep_exhausted",
        "inspected_yes",
        "inspected_lost",
        "released",
        "release_lost",
        "hold_added",
        "hold_released",
        "released_twice",
        "token_raised_after_hold",
        "lease_closed",
        "lease_not_closed",
        "release_with_seal_repeated",
        "lease_found",
        "found_no_lease",
        "several_granted",
        "lease_shared",
        "repeat_answered",
        "repeated_elsewhere",
        "waiter_granted",
        "waiter_timed_out",
        "call_cancelled",
        "request_cancelled",
        "own_grant_cancelled",
        "lease_expired_unnoticed",
        "gateway_crashed_with_calls",
        "gateway_crashed_with_waiters",
        "gateway_paused_past_ttl",
        "stale_read_refused",
        "stale_write_refused",
        "write_outcome_unknown",
        "release_message_received",
        "release_message_lost",
        "clock_jumped",
        "database_promoted",
        "dump_loaded",
        "snapshot_put_back",
        "replaced_during_change",
        "change_continued",
        "change_finished",
        "announcement_behind",
        "announced_to_unadmitted",
        "refused_by_generation",
        "refused_by_floor",
        "draw_refused",
        "replaced_server_reached",
        "replaced_server_refused",
        "replaced_server_found",
        "lost_write_reported",
    };
    return names[static_cast<std::size_t>(p)];
}

void probe_counts::add(const probe_counts& counts) {
    for (std::size_t i = 0; i < probe_count; ++i)
        counts_[i] += counts.counts_[i];
    for (std::size_t k = 0; k < lockcore::command_kinds; ++k) {
        sent_[k] += counts.sent_[k];
        for (std::size_t s = 0; s < statuses; ++s)
            answered_[k][s] += counts.answered_[k][s];
    }
}

probe_counts::rows probe_counts::list() const {
    rows out;
    for (std::size_t p = 0; p < probe_count; ++p)
        out.emplace_back(to_string(static_cast<probe>(p)), counts_[p]);
    for (const expected_answers& row : expected()) {
        const auto k = static_cast<std::size_t>(row.command);
        out.emplace_back(std::string(row.name) + " sent", sent_[k]);
        for (const status s : row.answers)
            out.emplace_back(std::string(row.name) + " answered " + to_string(s),
                             answered_[k][static_cast<std::size_t>(s)]);
    }
    return out;
}

}  // namespace sim
