#include <gateway/pg/read/snapshot_state.hpp>

#include <cstdlib>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

snapshot_state state_of(const session_slot& slot, const char* not_on_disk, const char* with_standbys, const char* end,
                        clock::time_point taken) {
    snapshot_state out;
    using enum snapshot_state::durability;
    out.seen = *with_standbys == 't' ? replicated : *not_on_disk == 't' ? unflushed : flushed;
    out.transaction_end = std::strtoull(end, nullptr, 10);
    out.taken = taken;
    out.connected_since = slot.connected_since();
    return out;
}

}  // namespace

const std::string& snapshot_state_sql() {
    // A server in recovery shows only what its primary had on disk before sending it.
    static const std::string sql =
        "select case when recovering then false else pg_catalog.pg_current_wal_insert_lsn() "
        "operator(pg_catalog.>) pg_catalog.pg_current_wal_flush_lsn() end, "
        "not recovering and pg_catalog.current_setting('synchronous_standby_names') operator(pg_catalog.<>) '', "
        "pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot()) "
        "from (select pg_catalog.pg_is_in_recovery() as recovering offset 0) as server";
    return sql;
}

snapshot_state read_snapshot_state(const session_slot& slot, const answer_rows& rows, clock::time_point taken) {
    return state_of(slot, rows.text(0, 0), rows.text(0, 1), rows.text(0, 2), taken);
}

snapshot_state fetch_snapshot_state(session_slot& slot) {
    const auto taken = clock::now();
    const auto rows = slot.get().exec(snapshot_state_sql(), {});
    return state_of(slot, rows[0][0].c_str(), rows[0][1].c_str(), rows[0][2].c_str(), taken);
}

}  // namespace fencegate::pg
