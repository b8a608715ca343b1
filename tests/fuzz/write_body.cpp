// The body of POST /v1/writes, down to the SQL.
#include "fuzz.hpp"
#include "sql_check.hpp"

#include <gateway/api/writes/write_body.hpp>
#include <gateway/pg/write/write_sql.hpp>

#include <string>

namespace fencegate::fuzz {

void run_input(std::string_view input) {
    http::request request;
    request.verb = http::method::post;
    request.principal = "orders";
    request.headers.emplace_back("content-type", "application/json");
    request.body = input;
    const auto call = api::parse_write_body(request, lockcore::config{});
    if (!call) return require(call.error().errors.size() <= field_errors_max, "the number of faults is bounded");
    require(!call->operations.empty() && call->operations.size() <= operations_max,
            "the number of operations is bounded");
    require(!call->lease_id.empty() || call->own_lease, "a write without the headers of a token has a lease");
    const auto plan = pg::build_statements(shop_catalog(), call->operations, {call->return_rows, call->select});
    if (!plan.faults.empty()) return;
    require(plan.operations.size() == call->operations.size(), "each operation has a statement");
    for (const auto& operation : plan.operations)
        check_statement(operation.sql);
}

}  // namespace fencegate::fuzz
