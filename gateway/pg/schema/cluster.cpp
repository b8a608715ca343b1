#include <gateway/pg/schema/cluster.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/schema/waiting.hpp>
#include <gateway/pg/write/guard_call.hpp>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::pg {
namespace {

/// Puts the name of the setting in front of a message that begins with the column of fencing.cluster.
std::string name_setting(const std::string& message) {
    constexpr std::pair<std::string_view, std::string_view> settings[] = {
        {"cell ", "cell: "},
        {"node_names ", "redis.nodes: "},
        {"max_ttl_ms ", "lease.max_ttl_ms: "},
        {"answer_bound_ms ", "lease.answer_bound_ms: "},
    };
    for (const auto& [column, setting] : settings) {
        if (message.starts_with(column)) return std::string(setting).append(message);
    }
    return message;
}

}  // namespace

result<void> check_direct(session& session) {
    if (session.is_direct()) return {};
    return unavailable(
        "The connection string (postgres.conninfo, --conninfo) leads to a connection pooler such as PgBouncer, which "
        "does not keep the settings and prepared statements of a connection: name the PostgreSQL server itself.");
}

result<void> check_schema(session& session, const std::string& role) {
    int found = 0;
    try {
        if (auto direct = check_direct(session); !direct) return direct;
        found = session.exec("select coalesce(fencing.schema_version(), 0)", {})[0][0].as<int>();
    } catch (const statement_failed& e) {
        const auto& code = e.error.sqlstate;
        if (code == "3F000" || code == "42883") {
            return unavailable("The schema `fencing` is missing in this database: run `fencegate migrate`.");
        }
        if (code == "42501") {
            return unavailable("The login role may not use the schema `fencing` (" + e.error.message +
                               "): grant it the role " + role +
                               (role == "fencing_gateway" ? ", as `fencegate migrate --gateway-role` does." : "."));
        }
        return unavailable("The schema `fencing` can't be read: " + e.error.message);
    }
    if (found == schema_version_needed) return {};
    return unavailable("The schema `fencing` has version " + std::to_string(found) + ", this program needs " +
                       std::to_string(schema_version_needed) +
                       (found < schema_version_needed ? ": run `fencegate migrate`."
                                                      : ": run the program that installed it, or a later one."));
}

boost::json::object read_guard_state(session& session) {
    return boost::json::parse(session.exec("select fencing.guard_state()", {})[0][0].c_str()).as_object();
}

bool has_recorder(const boost::json::object& guard_state) {
    return std::ranges::none_of(guard_state.at("limits").as_array(), [](const auto& limit) {
        return limit.as_string().starts_with("the recorder is not set up");
    });
}

guard_report watch_guard(session& session) {
    guard_report out;
    for (const auto& row : session.exec("select fencing.watch_guard()", {}))
        out.faults.emplace_back(row[0].c_str());
    out.state = read_guard_state(session);
    // Not by guard_state(), which must not wait for a connection.
    if (has_recorder(out.state)) {
        const auto fault = session.exec("select fencing.recorder_fault()", {});
        if (!fault[0][0].is_null())
            out.state.at("limits").as_array().emplace_back(
                std::string("the recorder fails, so that refusals of direct SQL are not in the history: ") +
                fault[0][0].c_str());
    }
    return out;
}

history_extent read_history_extent(session& session) {
    const auto rows = session.exec(
        "select coalesce((select sum(pg_total_relation_size(inhrelid)) from pg_inherits "
        "where inhparent = 'fencing.history'::regclass), 0)::bigint, "
        "coalesce((select extract(epoch from at) from fencing.history order by at, id limit 1), 0)::float8, "
        "(select count(*) from (select detail from fencing.history where event = 'write_rejected' "
        "and at >= now() - interval '1 hour' order by at desc, id desc limit 10000) r "
        "where detail ? 'application' and not detail ? 'observed')",
        {});
    return {rows[0][0].as<std::int64_t>(), rows[0][1].as<double>(), rows[0][2].as<std::int64_t>()};
}

result<std::chrono::milliseconds> join_cluster(session& session, membership m) {
    try {
        if (m.takes_answer_bound) {
            const auto rows = session.exec("select answer_bound_ms from fencing.cluster", {});
            if (!rows.empty()) m.answer_bound = std::chrono::milliseconds(rows[0][0].as<std::int64_t>());
        }
        session.exec(
            "select fencing.join_cluster($1::text[], $2::integer, $3::bigint, $4::integer, $5::bigint, $6::integer)",
            {array_literal(m.node_names), std::to_string(m.quorum), std::to_string(m.max_ttl.count()),
             std::to_string(lockcore::buckets), std::to_string(m.answer_bound.count()), std::to_string(m.cell)});
        return m.answer_bound;
    } catch (const statement_failed& e) {
        if (e.error.sqlstate != "FG500") throw;
        return make_failure(errc::invalid_request, name_setting(e.error.message));
    }
}

lockcore::drawn_epoch draw_epoch(session& session, const lockcore::epoch_request& request) {
    const auto rows =
        session.exec("select epoch, repeated from fencing.draw_epoch($1::text, $2::text, $3::boolean, $4::bigint)",
                     {request.node_name, request.life, request.synced ? "true" : "false",
                      std::to_string(lockcore::value_of(request.highest_observed))});
    lockcore::drawn_epoch out;
    out.value = lockcore::epoch{rows[0][0].as<std::uint64_t>()};
    out.repeated = rows[0][1].as<bool>();
    return out;
}

lockcore::node_record find_node_record(session& session, const std::string& node_name) {
    const auto rows = session.exec("select epoch, life, synced from fencing.node where name = $1::text", {node_name});
    lockcore::node_record out;
    if (rows.empty()) return out;
    out.known = true;
    out.latest_epoch = lockcore::epoch{rows[0][0].as<std::uint64_t>()};
    out.life = rows[0][1].as<std::string>();
    out.synced = rows[0][2].as<bool>();
    return out;
}

void note_node_unsynced(session& session, const std::string& node_name) {
    session.exec("select fencing.note_unsynced($1::text)", {node_name});
}

void note_waiting(session& session, const std::string& instance, const std::string& gateway,
                  const lockcore::waiting_overview& callers) {
    boost::json::object resources;
    for (const lockcore::waiting_count& entry : callers.resources)
        resources[entry.resource] = entry.waiters;
    session.exec("select fencing.note_waiting($1::uuid, $2::text, $3::bigint, $4::jsonb)",
                 {instance, gateway, std::to_string(callers.waiters), boost::json::serialize(resources)});
}

waiting_elsewhere read_waiting(session& session, const std::string& instance, const std::string& prefix) {
    const auto rows = session.exec("select fencing.waiting_elsewhere($1::uuid, $2::text)", {instance, prefix});
    const auto found = boost::json::parse(rows[0][0].c_str());
    waiting_elsewhere out;
    for (const auto& [name, waiters] : found.at("resources").as_object())
        out.resources.push_back({name, waiters.to_number<std::size_t>()});
    for (const auto& each : found.at("gateways").as_array())
        out.gateways.emplace_back(each.at("gateway").as_string(), each.at("waiters").to_number<std::size_t>());
    return out;
}

fence_state repair_fence(session& session, const lockcore::resource_name& resource, lockcore::fencing_token new_fence,
                         const actor& initiator, const std::string& reason) {
    const auto rows = session.exec(
        "select last_fencing_token from fencing.repair_fence($1::text, $2::bigint, $3::text, $4::text, $5::text, "
        "$6::jsonb)",
        {resource.str(), std::to_string(lockcore::value_of(new_fence)), initiator.principal,
         initiator.trace_id.empty() ? std::nullopt : std::optional(initiator.trace_id), reason,
         initiator.origin.empty() ? std::nullopt : std::optional(initiator.origin)});
    fence_state fence;
    fence.resource = resource.str();
    fence.last_fencing_token = rows[0][0].as<std::uint64_t>();
    return fence;
}

std::vector<fence_state> raise_fences(session& session, const fences_to_raise& wanted, const actor& initiator,
                                      const std::string& reason) {
    const auto rows = session.exec(raise_fences_sql(wanted), raise_fences_parameters(wanted, initiator, reason));
    std::vector<fence_state> fences;
    for (const auto& row : rows) {
        fence_state fence;
        fence.resource = row[raised_column::resource].c_str();
        fence.last_fencing_token = row[raised_column::last_fencing_token].as<std::uint64_t>();
        fences.push_back(std::move(fence));
    }
    return fences;
}

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
