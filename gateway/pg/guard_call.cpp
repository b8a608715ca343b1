#include <gateway/pg/guard_call.hpp>
#include <gateway/pg/sql_value.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace fencegate::pg {
namespace {

std::optional<std::string> null_if_empty(const std::string& text) {
    return text.empty() ? std::nullopt : std::optional(text);
}

/// What the history says of a write: the kind and the target of each operation, no values.
std::string describe(const std::vector<operation>& operations) {
    struct {
        std::string operator()(const update_operation& op) const { return "update " + op.table; }
        std::string operator()(const insert_operation& op) const { return "insert " + op.table; }
        std::string operator()(const delete_operation& op) const { return "delete " + op.table; }
        std::string operator()(const call_operation& op) const { return "call " + op.function; }
    } name;
    boost::json::array list;
    for (const auto& op : operations)
        list.emplace_back(std::visit(name, op));
    boost::json::object detail;
    detail["operations"] = std::move(list);
    return boost::json::serialize(detail);
}

/// A column of an array parameter.
class array_text {
  public:
    void add(const std::optional<std::string>& item) {
        text_ += text_.empty() ? '{' : ',';
        if (!item) {
            text_ += "NULL";
            return;
        }
        text_ += '"';
        for (const char c : *item) {
            if (c == '"' || c == '\\') text_ += '\\';
            text_ += c;
        }
        text_ += '"';
    }

    std::string take() { return std::move(text_) + '}'; }

  private:
    std::string text_;
};

}  // namespace

const std::string& begin_write_sql() {
    static const std::string sql =
        "select resource, last_fencing_token, accepted "
        "from fencing.begin_write($1::text[], $2::bigint, $3::uuid, $4::text, $5::text, $6::text, $7::jsonb)";
    return sql;
}

compat::parameters begin_write_parameters(const write_request& request) {
    std::vector<std::string> names;
    for (const auto& resource : request.resources)
        names.push_back(resource.str());
    return {array_literal(names),
            std::to_string(lockcore::value_of(request.token)),
            request.write_id,
            null_if_empty(request.by.owner),
            request.by.principal,
            null_if_empty(request.by.trace_id),
            describe(request.operations)};
}

const std::string& begin_writes_sql() {
    static const std::string sql =
        "select resource, last_fencing_token, accepted from fencing.begin_writes($1::text[], $2::bigint[], "
        "$3::uuid[], $4::text[], $5::text[], $6::text[], $7::jsonb[], $8::uuid[])";
    return sql;
}

compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& turns) {
    std::array<array_text, 7> columns;
    for (const auto* request : requests) {
        auto values = begin_write_parameters(*request);
        values[0] = request->resources.front().str();
        for (std::size_t i = 0; i < columns.size(); ++i)
            columns[i].add(values[i]);
    }
    compat::parameters out;
    for (auto& column : columns)
        out.emplace_back(column.take());
    out.emplace_back(array_literal(turns));
    return out;
}

const std::string& turn_sql() {
    static const std::string sql = "select set_config('fencing.write_id', $1, true)";
    return sql;
}

}  // namespace fencegate::pg
