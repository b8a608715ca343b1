#include <gateway/pg/history/history_walk.hpp>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include <optional>
#include <string>

namespace fencegate::pg {
namespace {

history_evidence evidence_of(const pqxx::row& row) {
    history_evidence out;
    out.id = row[0].as<std::int64_t>();
    out.at_us = row[1].as<std::int64_t>();
    out.event = row[2].c_str();
    out.resource = row[3].c_str();
    out.token = compat::optional_number(row[4]);
    out.last_token = compat::optional_number(row[5]);
    out.decided_by_guard = row[14].as<bool>();
    out.recorded_later = row[15].as<bool>();
    out.shared = row[16].as<bool>();
    if (!row[6].as<bool>()) return out;
    out.ttl_ms = compat::optional_number(row[7]);
    out.repair = row[8].as<bool>();
    out.has_reason = row[9].as<bool>();
    out.observed = row[10].as<bool>();
    out.bare = row[11].as<bool>();
    out.direct = row[12].as<bool>();
    out.refused_otherwise = row[13].as<bool>();
    return out;
}

std::string moment(statement& target, std::int64_t us) {
    return "timestamptz 'epoch' + " + target.bind(std::to_string(us)) + "::bigint * interval '1 microsecond'";
}

/// Returns the resources and the tokens as two array parameters.
compat::parameters token_lists(const std::vector<token_of_resource>& pairs) {
    std::vector<std::string> names, tokens;
    for (const auto& pair : pairs) {
        names.push_back(pair.resource);
        tokens.push_back(std::to_string(pair.token));
    }
    return {array_literal(names), array_literal(tokens)};
}

}  // namespace

std::vector<history_evidence> history_walk::next_chunk() {
    statement wanted;
    wanted.sql =
        "select id, (extract(epoch from greatest(at, timestamptz '0001-01-01 00:00:00+00')) * 1000000)::bigint, "
        "event, resource, fencing_token, last_fencing_token, detail is not null, "
        "case when jsonb_typeof(detail -> 'ttl_ms') = 'number' "
        "then least(greatest((detail ->> 'ttl_ms')::numeric, 0), 1e12)::bigint end, "
        "detail @> '{\"repair\": true}', btrim(coalesce(detail ->> 'reason', '')) <> '', "
        "detail @> '{\"observed\": true}', detail @> '{\"bare_token\": true}', detail @> '{\"direct\": true}', "
        // The row of an FG412 that an application's function raised names the error and no fence.
        "coalesce(detail ->> 'error' <> 'stale-fencing-token', false) or "
        "coalesce(detail ->> 'sqlstate' <> 'FG412', false) or "
        "(last_fencing_token is null and coalesce(detail ->> 'error', detail ->> 'sqlstate') is not null), "
        "write_id is not null and coalesce(detail ->> 'error', detail ->> 'sqlstate') is null, "
        // The guard's own rows have no error.
        "coalesce(detail ->> 'error' = 'stale-fencing-token', false), "
        "coalesce(detail @> '{\"mode\": \"shared\"}', false) "
        "from fencing.history where ";
    if (resource_.empty()) {
        wanted.sql += "resource >= " + wanted.bind(range_.resource_prefix.value_or(""));
    } else {
        const auto name = wanted.bind(resource_);
        const auto at = moment(wanted, at_us_);
        wanted.sql +=
            "(resource, at, id) > (" + name + ", " + at + ", " + wanted.bind(std::to_string(id_)) + "::bigint)";
    }
    if (range_.resource_prefix) wanted.sql += " and " + prefix_end(wanted, *range_.resource_prefix);
    if (range_.from_us) wanted.sql += " and at >= " + moment(wanted, *range_.from_us);
    wanted.sql += " and at < " + moment(wanted, range_.to_us);
    wanted.sql += " order by resource, at, id limit " + std::to_string(chunk);

    std::vector<history_evidence> out;
    const auto rows = session_.exec(wanted.sql, wanted.parameters);
    out.reserve(rows.size());
    for (const auto& row : rows)
        out.push_back(evidence_of(row));
    if (!out.empty()) {
        resource_ = out.back().resource;
        at_us_ = out.back().at_us;
        id_ = out.back().id;
    }
    return out;
}

walk_bounds find_bounds(session& session, const std::optional<std::string>& begin,
                        const std::optional<std::string>& end) {
    const auto rows = session.exec(
        "select (extract(epoch from $1::timestamptz) * 1000000)::bigint, "
        "(extract(epoch from coalesce($2::timestamptz, clock_timestamp())) * 1000000)::bigint, "
        "(select coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint from pg_inherits i join pg_class c on c.oid = "
        "i.inhrelid "
        "where i.inhparent = 'fencing.history'::regclass)",
        {begin, end});
    return {compat::optional_number(rows[0][0]), rows[0][1].as<std::int64_t>(), rows[0][2].as<std::int64_t>()};
}

std::vector<std::size_t> find_granted(session& session, const std::vector<token_of_resource>& asked) {
    const auto rows = session.exec(
        "select a.place - 1 from unnest($1::text[], $2::bigint[]) with ordinality as a (resource, token, place) where "
        "exists "
        "(select from fencing.history h where h.resource = a.resource collate \"C\" and h.fencing_token = a.token and "
        "h.event in ('lease_granted', 'lease_renewed'))",
        token_lists(asked));
    std::vector<std::size_t> out;
    for (const auto& row : rows)
        out.push_back(row[0].as<std::size_t>());
    return out;
}

std::vector<unscanned_row> find_unscanned_rows(session& session, const walk_range& range,
                                               std::optional<std::int64_t> skew_ms) {
    constexpr const char* rows = "select id, event, coalesce(resource, '') from fencing.history where ";
    statement wanted;
    wanted.sql = rows;
    wanted.sql += "resource is null and (event like 'lease%' or event in ('write_applied', 'fence_raised'))";
    if (range.from_us) wanted.sql += " and at >= " + moment(wanted, *range.from_us);
    wanted.sql += " and at < " + moment(wanted, range.to_us);
    if (skew_ms) {
        wanted.sql += " union all ";
        wanted.sql += rows;
        wanted.sql += "event in ('write_applied', 'write_rejected', 'fence_raised') and at > now() + " +
                      wanted.bind(std::to_string(*skew_ms)) + "::bigint * interval '1 millisecond'";
    }
    wanted.sql += " limit " + std::to_string(unscanned_rows_max);
    std::vector<unscanned_row> out;
    for (const auto& row : session.exec(wanted.sql, wanted.parameters))
        out.push_back({row[0].as<std::int64_t>(), row[1].c_str(), row[2].c_str()});
    return out;
}

std::unordered_map<std::string, current_fence> find_fences(session& session,
                                                           const std::vector<token_of_resource>& last) {
    // One statement, so that a fence and the row that raised it are in one snapshot.
    const auto rows = session.exec(
        "select g.resource, f.fence, f.fence > a.token and not exists "
        "(select from fencing.history h where h.resource = g.resource and h.fencing_token in (f.fence, f.fence - 1) "
        "and h.last_fencing_token = f.fence and h.event in ('write_applied', 'fence_raised')) "
        "from unnest($1::text[], $2::bigint[]) as a (resource, token) "
        "join fencing.guard g on g.resource = a.resource collate \"C\" "
        "cross join lateral (values (greatest(g.last_fencing_token, g.last_read_token))) f (fence)",
        token_lists(last));
    std::unordered_map<std::string, current_fence> out;
    for (const auto& row : rows)
        out.emplace(row[0].c_str(), current_fence{row[1].as<std::int64_t>(), row[2].as<bool>()});
    return out;
}

bool is_repaired_after(session& session, const std::string& resource, std::int64_t id) {
    return session
        .exec(
            "select exists (select from fencing.history where resource = $1 and id > $2::bigint and event = "
            "'fence_raised' and detail @> '{\"repair\": true}')",
            {resource, std::to_string(id)})[0][0]
        .as<bool>();
}

namespace {

constexpr const char* chunk_sql =
    "select id, (extract(epoch from at) * 1000000)::bigint, coalesce(principal, ''), detail ->> 'action', "
    "coalesce(detail ->> 'relation', ''), coalesce(detail ->> 'mode', ''), coalesce(detail ->> 'was', ''), "
    "(extract(epoch from (detail ->> 'not_before')::timestamptz) * 1000000)::bigint, "
    "coalesce(detail -> 'faults', '[]')::text, coalesce(detail ->> 'renamed_from', '') "
    "from fencing.history where event = 'guard_changed' "
    "and detail ->> 'action' in ('protect', 'unprotect', 'fault_found', 'fault_gone') "
    "and at < timestamptz 'epoch' + $1::bigint * interval '1 microsecond' "
    "and (at, id) > (timestamptz 'epoch' + $2::bigint * interval '1 microsecond', $3::bigint) "
    "order by at, id limit $4::integer";

guard_change change_of(const pqxx::row& row) {
    guard_change out;
    out.id = row[0].as<std::int64_t>();
    out.at_us = row[1].as<std::int64_t>();
    out.principal = row[2].c_str();
    out.action = row[3].c_str();
    out.table = row[4].c_str();
    out.mode = row[5].c_str();
    out.was = row[6].c_str();
    out.not_before_us = compat::optional_number(row[7]);
    out.renamed_from = row[9].c_str();
    const auto faults = boost::json::parse(row[8].c_str());
    if (const auto* list = faults.if_array()) {
        for (const auto& fault : *list) {
            if (fault.is_string()) out.faults.emplace_back(fault.as_string());
        }
    }
    return out;
}

}  // namespace

std::vector<guard_change> guard_changes::next_chunk() {
    const auto rows = session_.exec(
        chunk_sql, {std::to_string(to_us_), std::to_string(at_us_), std::to_string(id_), std::to_string(chunk)});
    std::vector<guard_change> out;
    for (const auto& row : rows)
        out.push_back(change_of(row));
    if (!out.empty()) {
        at_us_ = out.back().at_us;
        id_ = out.back().id;
    }
    return out;
}

std::vector<generation_change> find_generation_changes(session& session) {
    // Rows without a floor only name the lost writes of another gateway.
    const auto rows = session.exec(
        "select h.id, (h.detail ->> 'floor')::bigint, coalesce((select (extract(epoch from b.at) * 1000000)::bigint "
        "from fencing.history b where b.id < h.id and b.event = 'write_applied' order by b.id desc limit 1), 0) "
        "from fencing.history h "
        "where h.event = 'storage_generation_changed' and h.detail ? 'floor' order by h.id",
        {});
    std::vector<generation_change> out;
    for (const auto& row : rows)
        out.push_back({row[0].as<std::int64_t>(), row[1].as<std::int64_t>(), row[2].as<std::int64_t>()});
    return out;
}

}  // namespace fencegate::pg
