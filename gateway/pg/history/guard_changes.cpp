#include <gateway/pg/history/guard_changes.hpp>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include <optional>
#include <string>

namespace fencegate::pg {
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
