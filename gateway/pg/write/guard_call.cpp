#include <gateway/pg/write/guard_call.hpp>

#include <gateway/domain/exact_number.hpp>
#include <gateway/pg/connection/sql_value.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace fencegate::pg {
namespace {

std::optional<std::string> null_if_empty(const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

std::string array_of(const std::vector<lockcore::resource_name>& resources) {
    std::vector<std::string> names;
    names.reserve(resources.size());
    for (const auto& resource : resources)
        names.push_back(resource.str());
    return array_literal(names);
}

constexpr std::array<std::string_view, 12> operator_names{"eq", "neq", "lt",   "lte",   "gt",  "gte",
                                                          "in", "is",  "like", "ilike", "all", "any"};
static_assert(static_cast<std::size_t>(comparison_operator::any_of) == operator_names.size() - 1);

/// Collects the operations of a write on tables with their values, each of which has its column, so that PostgreSQL can
/// mask it (fencing.masked_wanted).
class wanted_operations {
  public:
    void operator()(const update_operation& op) {
        begin("update", op.table);
        add_values("set", op.set);
        add_values("add", op.add);
        add_conditions(op.where);
    }
    void operator()(const insert_operation& op) {
        begin("insert", op.table);
        if (op.rows.empty()) add_values("values", op.values);
        for (const auto& row : op.rows) {
            for (const auto& [column, value] : row.get_object())
                add("values", column, value);
        }
    }
    void operator()(const delete_operation& op) {
        begin("delete", op.table);
        add_conditions(op.where);
    }
    void operator()(const call_operation&) {}

    boost::json::array take() { return std::move(operations_); }

  private:
    static constexpr std::size_t bytes_max = 32 * 1024, names_bytes = 150;  // of an argument's members, or a mask

    void begin(const char* operation, const std::string& table) {
        operations_.push_back({{"operation", operation}, {"table", table}, {"arguments", boost::json::array()}});
    }

    /// Adds a value, or counts it where the values have too many bytes already.
    boost::json::object* add(std::string_view part, std::string_view column, const boost::json::value& value) {
        auto& operation = operations_.back().get_object();
        std::string text = is_json_string(value) ? std::string(value.get_string()) : json_text(value);
        bytes_ += text.size() + column.size() + names_bytes;
        if (bytes_ > bytes_max) {
            auto& count = operation["left_out"];
            count = count.is_null() ? 1 : count.get_int64() + 1;
            return nullptr;
        }
        auto& added = operation["arguments"].get_array().emplace_back(
            boost::json::object{{"part", part}, {"column", column}, {"value", nullptr}});
        if (!value.is_null()) added.get_object()["value"] = std::move(text);
        return &added.get_object();
    }
    void add_values(std::string_view part, const std::vector<assignment>& values) {
        for (const auto& each : values)
            add(part, each.name, each.value);
    }
    void add_conditions(const std::vector<comparison>& conditions) {
        for (const auto& each : conditions) {
            add_conditions(each.members);
            if (!each.members.empty()) continue;
            if (auto* added = add("where", each.column, each.value))
                (*added)["operator"] =
                    (each.negated ? "not." : "") + std::string(operator_names.at(static_cast<std::size_t>(each.op)));
        }
    }

    boost::json::array operations_;
    std::size_t bytes_ = 0;
};

/// Returns the detail of a write for the history: kind and target of each operation, without values, whether the token
/// came without a lease, and where the call came from; `wanted`: add_wanted() too.
std::string describe(const write_request& request, bool wanted) {
    struct {
        std::string operator()(const update_operation& op) const { return "update " + op.table; }
        std::string operator()(const insert_operation& op) const { return "insert " + op.table; }
        std::string operator()(const delete_operation& op) const { return "delete " + op.table; }
        std::string operator()(const call_operation& op) const { return "call " + op.function; }
    } name;
    boost::json::array list;
    for (const auto& op : request.operations)
        list.emplace_back(std::visit(name, op));
    boost::json::object detail;
    detail["operations"] = std::move(list);
    if (request.bare_token) detail["bare_token"] = true;
    if (wanted) add_wanted(request, detail);
    return join_objects(boost::json::serialize(detail), request.initiator.origin);
}

}  // namespace

void add_wanted(const write_request& request, boost::json::object& detail) {
    wanted_operations wanted;
    for (const auto& op : request.operations)
        std::visit(wanted, op);
    auto list = wanted.take();
    if (!list.empty()) detail["wanted"] = std::move(list);
}

compat::parameters begin_write_parameters(const write_request& request, bool wanted) {
    return {array_of(request.resources),
            std::to_string(lockcore::value_of(request.token)),
            request.write_id,
            null_if_empty(request.initiator.owner),
            request.initiator.principal,
            null_if_empty(request.initiator.trace_id),
            describe(request, wanted)};
}

compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& entered_for) {
    std::array<array_text, 7> columns;
    for (const auto* request : requests) {
        auto values = begin_write_parameters(*request, false);
        values[0] = request->resources.front().str();
        for (std::size_t i = 0; i < columns.size(); ++i)
            columns[i].add_or_null(values[i]);
    }
    compat::parameters out;
    for (auto& column : columns)
        out.emplace_back(column.take());
    out.emplace_back(array_literal(entered_for));
    return out;
}

compat::parameters seal_parameters(const std::vector<const write_request*>& requests) {
    std::array<array_text, 7> columns;
    for (const auto* request : requests) {
        for (const auto& resource : request->resources) {
            columns[0].add(resource.str());
            columns[1].add(lockcore::value_of(request->token));
            columns[2].add(request->write_id);
            columns[3].add_unless_empty(request->initiator.owner);
            columns[4].add(request->initiator.principal);
            columns[5].add_unless_empty(request->initiator.trace_id);
            columns[6].add_unless_empty(request->initiator.origin);
        }
    }
    compat::parameters out;
    for (auto& column : columns)
        out.emplace_back(column.take());
    return out;
}

void mark_sealed(write_outcome& outcome) {
    outcome.sealed = true;
    for (auto& fence : outcome.fences)
        fence.last_fencing_token = std::max(fence.last_fencing_token, lockcore::value_of(outcome.token) + 1);
}

const std::string& raise_fences_sql(const fences_to_raise& wanted) {
    static const std::string shared =
        "select resource, last_fencing_token, raised, last_fencing_token <= $1 from fencing.raise_read_fences("
        "$7::text[], $1::bigint, $2::text, $3::text, $4::text, $5::text, $6::jsonb, $8::uuid)";
    static const std::string exclusive =
        "select resource, last_fencing_token, last_fencing_token <> found_token, last_fencing_token <= $1 "
        "from fencing.raise_fences($7::text[], $1::bigint, $2::text, $3::text, $4::text, $5::text, $8::boolean, "
        "$6::jsonb)";
    static const std::string both =
        shared +
        " union all select resource, last_fencing_token, last_fencing_token <> found_token, last_fencing_token <= $1 "
        "from fencing.raise_fences($9::text[], $1::bigint, $2::text, $3::text, $4::text, $5::text, $10::boolean, "
        "$6::jsonb)";
    if (wanted.shared.empty()) return exclusive;
    return wanted.resources.empty() ? shared : both;
}

compat::parameters raise_fences_parameters(const fences_to_raise& wanted, const actor& initiator,
                                           const std::string& reason) {
    compat::parameters out{std::to_string(lockcore::value_of(wanted.token)),
                           null_if_empty(initiator.owner),
                           initiator.principal,
                           null_if_empty(initiator.trace_id),
                           reason,
                           null_if_empty(initiator.origin)};
    if (!wanted.shared.empty()) {
        out.emplace_back(array_of(wanted.shared));
        out.emplace_back(null_if_empty(wanted.write_id));
    }
    if (!wanted.resources.empty()) {
        out.emplace_back(array_of(wanted.resources));
        out.emplace_back(wanted.seals ? "true" : "false");
    }
    return out;
}

std::vector<fence_state> read_raised_fences(const answer_rows& rows) {
    std::vector<fence_state> out;
    out.reserve(static_cast<std::size_t>(rows.size()));
    for (int row = 0; row < rows.size(); ++row)
        out.push_back({rows.text(row, raised_column::resource),
                       std::strtoull(rows.text(row, raised_column::last_fencing_token), nullptr, 10)});
    return out;
}

fences_to_raise read_fences_of(const write_request& request) {
    return {.resources = {}, .shared = request.shared, .token = request.token, .write_id = request.write_id};
}

compat::parameters take_role_parameters(const database_identity& identity) {
    return {identity.role, identity.claims};
}

}  // namespace fencegate::pg
