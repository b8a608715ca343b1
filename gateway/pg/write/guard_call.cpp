#include <gateway/pg/write/guard_call.hpp>

#include <gateway/pg/connection/sql_value.hpp>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
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

/// Returns the detail of a write for the history: kind and target of each operation, without values, and whether the
/// token came without a lease.
std::string describe(const write_request& request) {
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
    return boost::json::serialize(detail);
}

}  // namespace

compat::parameters begin_write_parameters(const write_request& request) {
    std::vector<std::string> names;
    for (const auto& resource : request.resources)
        names.push_back(resource.str());
    return {array_literal(names),
            std::to_string(lockcore::value_of(request.token)),
            request.write_id,
            null_if_empty(request.initiator.owner),
            request.initiator.principal,
            null_if_empty(request.initiator.trace_id),
            describe(request)};
}

compat::parameters begin_writes_parameters(const std::vector<const write_request*>& requests,
                                           const std::vector<std::string>& open_for) {
    std::array<array_text, 7> columns;
    for (const auto* request : requests) {
        auto values = begin_write_parameters(*request);
        values[0] = request->resources.front().str();
        for (std::size_t i = 0; i < columns.size(); ++i)
            columns[i].add_or_null(values[i]);
    }
    compat::parameters out;
    for (auto& column : columns)
        out.emplace_back(column.take());
    out.emplace_back(array_literal(open_for));
    return out;
}

compat::parameters seal_parameters(const std::vector<const write_request*>& requests) {
    std::array<array_text, 6> columns;
    for (const auto* request : requests) {
        for (const auto& resource : request->resources) {
            columns[0].add(resource.str());
            columns[1].add(lockcore::value_of(request->token));
            columns[2].add(request->write_id);
            columns[3].add_unless_empty(request->initiator.owner);
            columns[4].add(request->initiator.principal);
            columns[5].add_unless_empty(request->initiator.trace_id);
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

compat::parameters raise_fences_parameters(const std::vector<lockcore::resource_name>& resources,
                                           lockcore::fencing_token new_fence, const actor& initiator,
                                           const std::string& reason) {
    std::vector<std::string> names;
    names.reserve(resources.size());
    for (const auto& resource : resources)
        names.push_back(resource.str());
    return {array_literal(names),
            std::to_string(lockcore::value_of(new_fence)),
            null_if_empty(initiator.owner),
            initiator.principal,
            null_if_empty(initiator.trace_id),
            reason};
}

compat::parameters take_role_parameters(const database_identity& identity) {
    return {identity.role, identity.claims};
}

}  // namespace fencegate::pg
