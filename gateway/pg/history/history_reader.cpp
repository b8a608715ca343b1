#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/history/history_reader.hpp>
#include <gateway/pg/history/history_walk.hpp>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace fencegate::pg {
namespace {

std::size_t limit_of(const history_query& query) {
    return std::clamp<std::size_t>(query.limit, 1, history_page_max);
}

/// Adds conditions to a statement, each with one bound value.
class filter {
  public:
    explicit filter(statement& target) : target_(target) {}

    void add(const char* before, std::optional<std::string> value, const char* after = "") {
        if (value) add(before + target_.bind(std::move(value)) + after);
    }

    /// Adds the prefix as a range, for which the column's index can be used; `like` would need an operator class of its
    /// own.
    void add_prefix(const std::optional<std::string>& prefix) {
        if (!prefix || prefix->empty()) return;
        add("resource >= ", prefix);
        add(prefix_end(target_, *prefix));
    }

  private:
    void add(const std::string& condition) {
        target_.sql += first_ ? " where " : " and ";
        first_ = false;
        target_.sql += condition;
    }

    statement& target_;
    bool first_ = true;
};

template <class Integer>
std::optional<std::string> to_text(const std::optional<Integer>& value) {
    return value ? std::optional(std::to_string(*value)) : std::nullopt;
}

std::string string_of(const pqxx::field& field) {
    return field.is_null() ? std::string() : std::string(field.c_str());
}

std::optional<std::uint64_t> token_of(const answer_rows& row, int column) {
    if (row.is_null(0, column)) return std::nullopt;
    return std::strtoull(row.text(0, column), nullptr, 10);
}

/// Reads id and time, the first two columns.
template <class Item>
Item begin_item(const answer_rows& row) {
    Item item;
    item.id = std::strtoll(row.text(0, 0), nullptr, 10);
    const std::chrono::microseconds at(std::strtoll(row.text(0, 1), nullptr, 10));
    item.at = std::chrono::system_clock::time_point(at);
    return item;
}

history_item item_of(const answer_rows& row) {
    const auto text = [&row](int column) { return std::string(row.text(0, column)); };
    auto item = begin_item<history_item>(row);
    item.event = text(2);
    item.resource = text(3);
    item.fencing_token = token_of(row, 4);
    item.last_fencing_token = token_of(row, 5);
    item.initiator.owner = text(6);
    item.initiator.principal = text(7);
    item.initiator.trace_id = text(8);
    item.write_id = text(9);
    item.detail = text(10);
    return item;
}

change_item change_of(const answer_rows& row) {
    const auto text = [&row](int column) { return std::string(row.text(0, column)); };
    auto item = begin_item<change_item>(row);
    item.table = text(2);
    item.operation = text(3);
    item.key = text(4);
    item.old_values = text(5);
    item.new_values = text(6);
    item.resource = text(7);
    item.fencing_token = token_of(row, 8);
    item.write_id = text(9);
    item.principal = text(10);
    item.direct = text(11) == "t";
    item.application = text(12);
    return item;
}

std::size_t bytes_of(const history_item& item) {
    return item.detail.size();
}

std::size_t bytes_of(const change_item& item) {
    return item.key.size() + item.old_values.size() + item.new_values.size();
}

using time_point = std::chrono::system_clock::time_point;

/// The newest grants, renewals and ends of a lease that are read: the clocks of gateways differ, so that the last of
/// them may have an earlier time than the one before.
constexpr int lease_events_read = 100;

/// begin <= at < end
struct window {
    std::optional<time_point> begin, end;
};

std::optional<time_point> later(std::optional<time_point> a, std::optional<time_point> b) {
    return a && b ? std::max(a, b) : a ? a : b;
}

std::optional<time_point> earlier(std::optional<time_point> a, std::optional<time_point> b) {
    return a && b ? std::min(a, b) : a ? a : b;
}

/// Returns the windows of time to search one after the other, in the query's order: one for each partition where a
/// filter may match rows of some partitions only. In one statement PostgreSQL would search every partition for its
/// first match before it returns the first row, and so read all rows of partitions without a match.
std::vector<window> windows_of(session& session, const history_query& query, const char* table) {
    // Future weeks are one window, because they are empty.
    const auto rows = session.exec(
        "select extract(epoch from t.week)::bigint from pg_inherits i join pg_class c on c.oid = i.inhrelid, "
        // PostgreSQL may look at partitions of other tables first, whose names may end with other digits.
        "lateral (select case when c.relname ~ '^(history|row_change)_[0-9]{8}$' then "
        "to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' end as week) as t "
        "where i.inhparent = $1::regclass "
        "and t.week < now() + interval '168 hours' order by 1",
        {table});
    std::vector<window> out(1);
    for (const auto& row : rows) {
        const time_point week{std::chrono::seconds(row[0].as<std::int64_t>())};
        out.back().end = week;
        out.push_back({week, std::nullopt});
    }
    if (!query.ascending) std::ranges::reverse(out);
    // Drops the windows before the cursor.
    if (query.after) {
        // In microseconds: a cursor may have a time that is beyond those in nanoseconds.
        const auto in_us = [](time_point t) { return t.time_since_epoch() / std::chrono::microseconds(1); };
        const auto at = query.after->at_us;
        std::erase_if(out, [&](const window& interval) {
            return query.ascending ? interval.end && in_us(*interval.end) <= at
                                   : interval.begin && in_us(*interval.begin) > at;
        });
    }
    return out;
}

/// Reads the rows of the windows one after the other into a page.
template <class Query, class Page, class Item>
void read_windows(session& session, const Query& query, const std::vector<window>& windows,
                  statement (*sql_of)(const Query&), Item (*read_item)(const answer_rows&), Page& page) {
    Query part = query;
    std::size_t bytes = 0;
    for (const window& interval : windows) {
        part.from = later(query.from, interval.begin);
        part.to = earlier(query.to, interval.end);
        if (part.from && part.to && *part.from >= *part.to) continue;
        part.limit = limit_of(query) - page.items.size() + 1;  // one more tells whether items follow
        const auto wanted = sql_of(part);
        session.read_each(wanted.sql, wanted.parameters, [&](const answer_rows& row) {
            page.more = page.more || page.items.size() == limit_of(query) || bytes >= history_page_bytes_max;
            if (page.more) return;
            page.items.push_back(read_item(row));
            bytes += bytes_of(page.items.back());
        });
        if (page.more) break;
    }
}

/// Returns 0 for a text that is no ttl: rows of the history may have been inserted by hand.
std::chrono::milliseconds ttl_of(std::string_view text) {
    std::uint32_t ttl = 0;
    const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), ttl);
    return std::chrono::milliseconds(fault == std::errc() && end == text.data() + text.size() ? ttl : 0);
}

/// Returns the id of the last row of at most history_block_max rows in the order of id; the end of the range if there
/// are fewer.
std::int64_t end_of_block(session& session, const std::pair<std::int64_t, std::int64_t>& ids) {
    if (ids.second - ids.first <= history_block_max) return ids.second;
    const auto rows = session.exec(
        "select id from fencing.history where id > $1::bigint and id <= $2::bigint order by id offset $3::bigint "
        "limit 1",
        {std::to_string(ids.first), std::to_string(ids.second), std::to_string(history_block_max - 1)});
    return rows.empty() ? ids.second : rows[0][0].as<std::int64_t>();
}

/// Adds the conditions, the order and the limit of a query.
void add_filters(statement& out, filter& where, const history_query& query) {
    where.add("resource = ", query.resource);
    where.add_prefix(query.resource_prefix);
    if (query.event && query.event->find(',') != std::string::npos)
        where.add("event = any(string_to_array(", query.event, ", ','))");
    else
        where.add("event = ", query.event);
    where.add("owner = ", query.owner);
    where.add("principal = ", query.principal);
    where.add("trace_id = ", query.trace_id);
    where.add("write_id = ", query.write_id, "::uuid");
    where.add("fencing_token >= ", to_text(query.token_min), "::bigint");
    where.add("fencing_token <= ", to_text(query.token_max), "::bigint");
    where.add("at >= ", query.from ? std::optional(sql_time(*query.from)) : std::nullopt, "::timestamptz");
    where.add("at < ", query.to ? std::optional(sql_time(*query.to)) : std::nullopt, "::timestamptz");
    if (query.after) {
        // The second condition follows from the first; only the second lets the planner skip partitions.
        const std::chrono::sys_time<std::chrono::microseconds> at{std::chrono::microseconds(query.after->at_us)};
        const auto moment = out.bind(sql_time(at)) + "::timestamptz";
        where.add(("(at, id) " + std::string(query.ascending ? "> (" : "< (") + moment + ", ").c_str(),
                  std::to_string(query.after->id), "::bigint)");
        out.sql += std::string(" and at ") + (query.ascending ? ">= " : "<= ") + moment;
    }
    if (query.ids) {
        out.sql += " order by id";
    } else {
        out.sql += query.ascending ? " order by at asc, id asc" : " order by at desc, id desc";
    }
    out.sql += " limit " + out.bind(std::to_string(query.limit)) + "::bigint";
}

}  // namespace

statement history_sql(const history_query& query) {
    statement out;
    out.sql =
        "select id, (extract(epoch from at) * 1000000)::bigint, event, resource, fencing_token, last_fencing_token, "
        "owner, principal, trace_id, write_id, " +
        std::string(query.with_wanted ? "detail" : "(detail - 'wanted')") + "::text from ";
    if (query.ids) {
        // `offset 0` keeps the filters out of it: by the index of a filter PostgreSQL could read rows of all ids.
        const auto above = out.bind(std::to_string(query.ids->first));
        const auto up_to = out.bind(std::to_string(query.ids->second));
        out.sql += "(select * from fencing.history where id > " + above + "::bigint and id <= " + up_to +
                   "::bigint order by id offset 0) as block";
    } else {
        out.sql += "fencing.history";
    }
    filter where(out);
    add_filters(out, where, query);
    return out;
}

history_page read_history(session& session, const history_query& query) {
    history_page page;
    history_query part = query;
    if (query.ids) {
        page.read_to = query.has_every_row() ? query.ids->second : end_of_block(session, *query.ids);
        part.ids->second = page.read_to;
    }
    const bool found_at_once = query.ids || query.resource || query.write_id || query.trace_id;
    const bool by_week = query.is_filtered() && !found_at_once;
    read_windows(session, part, by_week ? windows_of(session, query, "fencing.history") : std::vector<window>(1),
                 history_sql, item_of, page);
    return page;
}

statement changes_sql(const change_query& query) {
    statement out;
    out.sql =
        "select id, (extract(epoch from at) * 1000000)::bigint, relation, operation, row_key::text, old::text, "
        "new::text, resource, fencing_token, write_id, principal, direct, application from fencing.row_change";
    filter where(out);
    where.add("relation = ", query.table);
    // As a function: with two equalities PostgreSQL expects few rows of a frequent key, and would sort all of them.
    where.add("jsonb_hash_extended(row_key, 0) = jsonb_hash_extended(", query.key, "::jsonb, 0)");
    where.add("jsonb_eq(row_key, ", query.key, "::jsonb)");
    where.add("jsonb_exists(coalesce(old, '{}') || coalesce(new, '{}'), ", query.column, "::text)");
    add_filters(out, where, query);
    return out;
}

change_page read_changes(session& session, const change_query& query) {
    change_page page;
    const bool by_week = (query.is_filtered() || query.table || query.column) && !query.is_found_at_once();
    read_windows(session, query, by_week ? windows_of(session, query, "fencing.row_change") : std::vector<window>(1),
                 changes_sql, change_of, page);
    return page;
}

std::vector<recorded_lease> read_recorded_leases(session& session, const std::vector<asked_lease>& asked) {
    std::vector<recorded_lease> out(asked.size());
    if (asked.empty()) return out;
    array_text resources, tokens, grants, since, granted_since;
    for (const asked_lease& lease : asked) {
        resources.add(lease.resource);
        tokens.add(lease.token);
        grants.add(lease.grant);
        since.add(sql_time(lease.since));
        granted_since.add(lease.granted_since ? sql_time(*lease.granted_since) : "infinity");
    }
    // `offset 0` keeps the token and the events out of the reading by time: of one token, or of one resource, there may
    // be millions of rows, and by their indexes PostgreSQL would read all of them. At its other place it lets
    // PostgreSQL look a grant up once for each lease.
    const auto rows = session.exec(
        "select a.place - 1, h.event, (extract(epoch from h.at) * 1000000)::bigint, coalesce(h.detail->>'ttl_ms', ''), "
        "a.granted from (select t.*, exists (select from (select * from fencing.history where resource = "
        "t.resource collate \"C\" and at >= t.granted_since order by at, id offset 0) as oldest "
        "where fencing_token = t.token and event = 'lease_granted' and t.own_grant in ('', detail->>'grant')) as "
        "granted from unnest($1::text[], $2::bigint[], $3::text[], $4::timestamptz[], $5::timestamptz[]) "
        "with ordinality as t (resource, token, own_grant, since, granted_since, place) offset 0) as a "
        "cross join lateral (select event, at, detail from (select * from fencing.history where resource = "
        "a.resource collate \"C\" and at >= a.since order by at desc, id desc offset 0) as newest "
        "where fencing_token = a.token and a.own_grant in ('', detail->>'grant') and event in ('lease_granted', "
        "'lease_renewed', 'lease_released', 'lease_revoked', 'lease_expired') order by at desc limit " +
            std::to_string(lease_events_read) + ") as h",
        {resources.take(), tokens.take(), grants.take(), since.take(), granted_since.take()});
    for (const auto& row : rows) {
        recorded_lease& lease = out.at(row[0].as<std::size_t>());
        const std::string_view event = row[1].c_str();
        lease.granted = row[4].as<bool>();
        if (event == "lease_granted" || event == "lease_renewed") {
            const std::chrono::microseconds at(row[2].as<std::int64_t>());
            const time_point until(at + ttl_of(row[3].c_str()));
            lease.until = std::max(lease.until.value_or(until), until);
        } else {
            lease.ended = true;
        }
    }
    return out;
}

history_tail read_history_tail(session& session) {
    const auto rows =
        session.exec("select last_id, w from fencing.history_tail() left join unnest(writers) as w on true", {});
    history_tail tail;
    tail.last_id = rows[0][0].as<std::int64_t>();
    for (const auto& row : rows) {
        if (!row[1].is_null()) tail.writers.emplace_back(row[1].c_str());
    }
    return tail;
}

std::vector<history_count> summarize_history(session& session, const history_summary_query& query) {
    statement wanted;
    const auto bucket = wanted.bind(std::to_string(query.bucket.count())) + "::bigint";
    const auto offset = wanted.bind(std::to_string(std::chrono::milliseconds(query.offset).count())) + "::bigint";
    // In floating point, which is twice as fast; the added half microsecond exceeds its error.
    wanted.sql = "select (floor(date_part('epoch', at) * 1000 + 0.0005)::bigint + " + offset + ") / " + bucket + " * " +
                 bucket + " - " + offset + ", event, count(*) from fencing.history";
    filter where(wanted);
    where.add("at >= ", sql_time(query.from), "::timestamptz");
    where.add("at < ", sql_time(query.to), "::timestamptz");
    where.add_prefix(query.resource_prefix);
    wanted.sql += " group by 1, 2 order by 1, 2";
    std::vector<history_count> counts;
    for (const auto& row : session.exec_once(wanted.sql, wanted.parameters)) {
        history_count entry;
        entry.bucket = std::chrono::system_clock::time_point(std::chrono::milliseconds(row[0].as<std::int64_t>()));
        entry.event = string_of(row[1]);
        entry.count = row[2].as<std::int64_t>();
        counts.push_back(std::move(entry));
    }
    return counts;
}

resource_facts read_resource(session& session, const std::string& resource, std::size_t last_events) {
    resource_facts facts;
    history_query newest;
    newest.resource = resource;
    newest.limit = last_events;
    session.command("begin isolation level repeatable read read only");
    try {
        const auto fences = session.exec(
            "select fencing.fence($1::text), coalesce((select g.last_read_token from fencing.guard g where "
            "g.resource = $1), 0)",
            {resource});
        facts.last_fencing_token = fences[0][0].as<std::uint64_t>();
        facts.last_read_token = fences[0][1].as<std::uint64_t>();
        const auto rows = session.exec(
            "select event, count(*) from (select event from fencing.history where resource = $1 order by at desc, id "
            "desc limit $2::bigint) as newest group by event order by event",
            {resource, std::to_string(resource_events_counted_max)});
        std::int64_t sum = 0;
        for (const auto& row : rows) {
            facts.counts.emplace_back(row[0].c_str(), row[1].as<std::int64_t>());
            sum += facts.counts.back().second;
        }
        facts.all_counted = sum < resource_events_counted_max;
        facts.last_events = read_history(session, newest).items;
        session.command("commit");
    } catch (const statement_failed&) {
        session.command("rollback");
        throw;
    }
    return facts;
}

std::string read_resource_at(session& session, const std::string& resource, std::chrono::system_clock::time_point at,
                             bool with_rows) {
    return session
        .exec("select fencing.resource_at($1::text, $2::timestamptz, $3::boolean)::text",
              {resource, sql_time(at), with_rows ? "true" : "false"})[0][0]
        .c_str();
}

history_upkeep keep_history(session& session, unsigned keep_days) {
    const auto rows = session.exec("select made, dropped, remaining from fencing.keep_history($1::integer)",
                                   {std::to_string(keep_days)});
    return {rows[0][0].as<int>(), rows[0][1].as<int>(), rows[0][2].as<int>()};
}

}  // namespace fencegate::pg
