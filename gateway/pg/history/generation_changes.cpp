#include <gateway/pg/history/generation_changes.hpp>

namespace fencegate::pg {

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
