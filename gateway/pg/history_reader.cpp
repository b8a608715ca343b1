#include <gateway/pg/history_reader.hpp>

#include <algorithm>

namespace fencegate::pg {
namespace {

std::string micros_of(std::chrono::system_clock::time_point at) {
    return std::to_string(std::chrono::floor<std::chrono::microseconds>(at.time_since_epoch()).count());
}

std::size_t limit_of(const history_query& query) {
    return std::clamp<std::size_t>(query.limit, 1, history_page_max);
}

/// Joins conditions, each with one bound value.
class filter {
  public:
    explicit filter(statement& into) : into_(into) {}

    void add(const char* before, std::optional<std::string> value, const char* after = "") {
        if (!value) return;
        into_.sql += first_ ? " where " : " and ";
        first_ = false;
        into_.sql += before + into_.bind(std::move(value)) + after;
    }

  private:
    statement& into_;
    bool first_ = true;
};

template <class Integer>
std::optional<std::string> text_of(const std::optional<Integer>& value) {
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
}

std::optional<std::uint64_t> token_of(const pqxx::field& field) {
    return field.is_null() ? std::nullopt : std::optional(field.as<std::uint64_t>());
}

std::string string_of(const pqxx::field& field) {
    return field.is_null() ? std::string() : std::string(field.c_str());
}

history_item item_of(const pqxx::row& row) {
    history_item item;
    item.id = row[0].as<std::int64_t>();
    item.at = std::chrono::system_clock::time_point(std::chrono::microseconds(row[1].as<std::int64_t>()));
    item.event = string_of(row[2]);
    item.resource = string_of(row[3]);
    item.fencing_token = token_of(row[4]);
    item.last_fencing_token = token_of(row[5]);
    item.by.owner = string_of(row[6]);
    item.by.principal = string_of(row[7]);
    item.by.trace_id = string_of(row[8]);
    item.write_id = string_of(row[9]);
    item.detail = string_of(row[10]);
    return item;
}

}  // namespace

statement history_sql(const history_query& query) {
    statement out;
    out.sql =
        "select id, (extract(epoch from at) * 1000000)::bigint, event, resource, fencing_token, last_fencing_token, "
        "owner, principal, "
        "trace_id, write_id, detail::text from fencing.history";
    filter where(out);
    where.add("resource = ", query.resource);
    if (query.resource_prefix && !query.resource_prefix->empty()) {
        // A range over the column's own collation "C", which its index serves; `like` would need an operator class of
        // its own. No name of a resource holds a byte above "z", so that everything with the prefix is below prefix +
        // DEL, and nothing else is.
        where.add("resource >= ", query.resource_prefix);
        where.add("resource < ", *query.resource_prefix + '\x7f');
    }
    where.add("event = ", query.event);
    where.add("owner = ", query.owner);
    where.add("principal = ", query.principal);
    where.add("trace_id = ", query.trace_id);
    where.add("write_id = ", query.write_id, "::uuid");
    where.add("fencing_token >= ", text_of(query.token_min), "::bigint");
    where.add("fencing_token <= ", text_of(query.token_max), "::bigint");
    constexpr auto from_micros = "::bigint * interval '1 microsecond'";
    where.add("at >= timestamptz 'epoch' + ", query.from ? std::optional(micros_of(*query.from)) : std::nullopt,
              from_micros);
    where.add("at < timestamptz 'epoch' + ", query.to ? std::optional(micros_of(*query.to)) : std::nullopt,
              from_micros);
    if (query.after) {
        // The second condition is in the first; it is for the planner, which leaves out partitions by it alone.
        const auto at = out.bind(std::to_string(query.after->at_us));
        const auto moment = "timestamptz 'epoch' + " + at + from_micros;
        where.add(("(at, id) " + std::string(query.ascending ? "> (" : "< (") + moment + ", ").c_str(),
                  std::to_string(query.after->id), "::bigint)");
        out.sql += std::string(" and at ") + (query.ascending ? ">= " : "<= ") + moment;
    }
    out.sql += query.ascending ? " order by at asc, id asc" : " order by at desc, id desc";
    out.sql += " limit " + out.bind(std::to_string(limit_of(query) + 1)) + "::bigint";
    return out;
}

history_page read_history(session& via, const history_query& query) {
    const auto wanted = history_sql(query);
    const auto rows = via.exec(wanted.sql, wanted.parameters);
    history_page page;
    for (const auto& row : rows) {
        if (page.items.size() == limit_of(query)) {
            page.more = true;
            break;
        }
        page.items.push_back(item_of(row));
    }
    return page;
}

}  // namespace fencegate::pg
