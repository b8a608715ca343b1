#include <gateway/pg/history/history_writer.hpp>

#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace fencegate::pg {
namespace {

namespace json = boost::json;

/// Returns the detail with the origin of the event, as a JSON object; empty if there is neither.
std::string whole_detail(const history_item& item) {
    const bool is_object = item.detail.empty() || item.detail.front() == '{';
    if (is_object) return join_objects(item.detail, item.initiator.origin);
    return join_objects(json::serialize(json::object{{"text", item.detail}}), item.initiator.origin);
}

json::object object_of(const history_item& item) {
    json::object out;
    const auto add_text = [&out](const char* name, const std::string& text) {
        if (!text.empty()) out[name] = text;
    };
    out["event"] = item.event;
    if (item.at != std::chrono::system_clock::time_point{}) out["at"] = sql_time(item.at);
    add_text("resource", item.resource);
    if (item.fencing_token) out["fencing_token"] = *item.fencing_token;
    if (item.last_fencing_token) out["last_fencing_token"] = *item.last_fencing_token;
    add_text("owner", item.initiator.owner);
    add_text("principal", item.initiator.principal);
    add_text("trace_id", item.initiator.trace_id);
    add_text("write_id", item.write_id);
    const std::string detail = whole_detail(item);
    if (!detail.empty()) out["detail"] = json::parse(detail);
    return out;
}

const std::string append_sql =
    "select fencing.append_events($1::uuid, $2::bigint, $3::bigint[], $4::text[], $5::text[], $6::bigint[], "
    "$7::bigint[], $8::text[], $9::text[], $10::text[], $11::uuid[], $12::jsonb[])";

template <class Add>
std::optional<std::string> column(const std::vector<history_item>& items, Add add) {
    array_text out;
    for (const auto& item : items)
        add(out, item);
    return out.take_unless_null();
}

std::optional<std::string> text_column(const std::vector<history_item>& items, const std::string history_item::*field) {
    return column(items, [field](array_text& out, const history_item& item) { out.add_unless_empty(item.*field); });
}

std::optional<std::string> actor_column(const std::vector<history_item>& items, const std::string actor::*field) {
    return column(items,
                  [field](array_text& out, const history_item& item) { out.add_unless_empty(item.initiator.*field); });
}

std::optional<std::string> token_column(const std::vector<history_item>& items,
                                        const std::optional<std::uint64_t> history_item::*field) {
    return column(items, [field](array_text& out, const history_item& item) {
        if (const auto& token = item.*field) {
            out.add(*token);
        } else {
            out.add_null();
        }
    });
}

/// Whether the content of an event is at fault; events that PostgreSQL refuses for anything else are sent again later.
bool is_fault_of_event(std::string_view sqlstate) {
    return sqlstate.starts_with("22") || sqlstate.starts_with("23") || sqlstate.starts_with("54") ||
           sqlstate == "P0001";
}

}  // namespace

std::string history_json(const std::vector<history_item>& items) {
    json::array list;
    list.reserve(items.size());
    for (const auto& item : items)
        list.emplace_back(object_of(item));
    return json::serialize(list);
}

const std::string& record_events_sql() {
    static const std::string sql = "select fencing.record_events($1::jsonb)";
    return sql;
}

void append_history(session& session, const history_item& item) {
    session.exec(record_events_sql(), {history_json({item})});
}

compat::parameters history_columns(const std::vector<history_item>& items) {
    const auto at = [](array_text& out, const history_item& item) {
        if (item.at == std::chrono::system_clock::time_point{}) {
            out.add_null();  // PostgreSQL uses the time at which the item is added
        } else {
            out.add(std::chrono::floor<std::chrono::microseconds>(item.at.time_since_epoch()).count());
        }
    };
    const auto detail = [](array_text& out, const history_item& item) { out.add_unless_empty(whole_detail(item)); };
    return {column(items, at),
            text_column(items, &history_item::event),
            text_column(items, &history_item::resource),
            token_column(items, &history_item::fencing_token),
            token_column(items, &history_item::last_fencing_token),
            actor_column(items, &actor::owner),
            actor_column(items, &actor::principal),
            actor_column(items, &actor::trace_id),
            text_column(items, &history_item::write_id),
            column(items, detail)};
}

result<std::size_t> append_history(session_slot& slot, const history_batch& batch) {
    if (batch.items.empty()) return std::size_t{0};
    compat::parameters parameters{batch.stream, std::to_string(batch.first_sequence)};
    std::ranges::move(history_columns(batch.items), std::back_inserter(parameters));
    try {
        return slot.get().exec(append_sql, parameters)[0][0].as<std::size_t>();
    } catch (const statement_failed& e) {
        const auto& code = e.error.sqlstate;
        const errc meaning = rule_of(code).meaning;
        const bool is_known = meaning == errc::storage_unavailable || meaning == errc::write_conflict;
        if (is_fault_of_event(code) || (is_known && code != "42501")) throw;
        // The function is missing, not granted or fails. A new session prepares the statement again.
        slot.drop();
        spdlog::error("fencing.append_events failed: {} {}", code, e.error.message);
        return unavailable("The history in PostgreSQL can't be written (see the log); nothing was added.");
    }
}

}  // namespace fencegate::pg
