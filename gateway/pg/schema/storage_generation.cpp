#include <gateway/pg/schema/storage_generation.hpp>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

namespace fencegate::pg {

storage_state find_storage_state(session& session) {
    const auto rows = session.exec(
        "select current, coalesce(system_identifier || '/' || timeline, ''), coalesce(live_system_identifier || '/' || "
        "live_timeline, ''), floor from fencing.storage_generation_state()",
        {});
    storage_state out;
    out.current = rows[0][0].as<bool>();
    out.stored = rows[0][1].as<std::string>();
    out.live = rows[0][2].as<std::string>();
    out.floor = lockcore::epoch{rows[0][3].as<std::uint64_t>() / lockcore::tokens_per_epoch};
    return out;
}

std::optional<lockcore::epoch> check_server(session& session) {
    try {
        const storage_state state = find_storage_state(session);
        if (state.current) return state.floor;
        if (state.live.empty()) return std::nullopt;  // a refused change would end the session
        session.exec_once("select from fencing.begin_generation_change(0)", {});
    } catch (const statement_failed&) {
        // The start-up, readiness and each statement report why this server can't be used.
    }
    return std::nullopt;
}

std::optional<lockcore::storage_floor> begin_generation_change(session& session, lockcore::epoch seen) {
    const auto rows = session.exec("select change_id, epoch from fencing.begin_generation_change($1::bigint)",
                                   {std::to_string(lockcore::value_of(seen))});
    if (rows.empty()) return std::nullopt;
    lockcore::storage_floor out;
    out.change_id = rows[0][0].as<std::string>();
    out.value = lockcore::epoch{rows[0][1].as<std::uint64_t>()};
    return out;
}

bool finish_generation_change(session& session, const std::string& change_id, const change_report& report) {
    boost::json::array lost(report.lost_writes.begin(), report.lost_writes.end());
    const auto rows =
        session.exec("select finished from fencing.finish_generation_change($1::uuid, $2::text, $3::jsonb)",
                     {change_id, report.gateway, boost::json::serialize(lost)});
    return rows[0][0].as<bool>();
}

std::vector<std::string> find_lost_writes(session& session, const std::vector<std::string>& write_ids) {
    std::string literal = "{";
    for (const std::string& id : write_ids)
        literal.append(literal.size() > 1 ? "," : "").append(id);
    const auto rows = session.exec("select fencing.find_lost_writes($1::uuid[])", {literal + "}"});
    std::vector<std::string> out;
    for (const auto& row : rows)
        out.push_back(row[0].as<std::string>());
    return out;
}

}  // namespace fencegate::pg
