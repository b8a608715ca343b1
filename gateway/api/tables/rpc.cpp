#include <gateway/api/tables/rpc.hpp>

#include <gateway/api/tables/tables.hpp>
#include <gateway/api/writes/answer_write.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_operations.hpp>
#include <gateway/domain/table_read.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/http/codec/query.hpp>
#include <gateway/pg/read/read_executor.hpp>

#include <algorithm>

namespace fencegate::api {
namespace {

result<std::vector<assignment>> read_body_arguments(const http::request& r) {
    if (r.body.empty()) return std::vector<assignment>{};
    auto body = http::parse_object_body(r);
    if (!body) return std::move(body).error();
    http::fault_list faults;
    auto out = take_assignments(*body, "", faults);
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

result<std::vector<assignment>> read_query_arguments(const http::request& r) {
    http::fault_list faults;
    std::vector<assignment> out;
    for (auto& [name, value] : http::query_parameters(r.query, faults)) {
        if (std::ranges::find(out, name, &assignment::name) != out.end()) {
            faults.add(name, "is given more than once");
            continue;
        }
        out.push_back({name, boost::json::value(value), name, true});
    }
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

http::response render_value(std::string json, bool is_void) {
    if (!is_void) return http::json_response(std::move(json));
    http::response out;
    out.status = 204;
    return out;
}

/// Translates a failure of the write's only operation into the fields of this request.
void translate_failure(failure& f) {
    f.facts.erase("operation");
    std::erase_if(f.errors, [](const auto& error) { return error.pointer == "/operations/0"; });
    for (auto& error : f.errors) {
        if (error.pointer == "/operations/0/call") {
            f.code = errc::not_found;
            f.detail = std::move(error.detail);
            f.errors.clear();
            return;
        }
        if (error.pointer == "/operations/0/args") error.pointer.clear();
    }
}

boost::asio::awaitable<http::response> answer_read(gateway_services services, http::request r,
                                                   std::vector<assignment> args) {
    auto fence = authorize_read(services, r);
    if (!fence) co_return http::problem_response(fence.error(), r.request_id);
    function_query query;
    query.function = r.path_parameters.front();
    query.args = std::move(args);
    query.limit = static_cast<std::int64_t>(services.settings.postgres.rows_max);
    read_request wanted{std::move(query), std::move(*fence), r.rights->database()};
    auto outcome = co_await services.reads.read(r.principal, std::move(wanted), r.deadline);
    if (!outcome) co_return http::problem_response(outcome.error(), r.request_id);
    const bool is_void = outcome->json.empty();
    auto out = render_value(std::move(outcome->json), is_void);
    out.memory = std::move(outcome->memory);
    if (outcome->is_set) out.headers.emplace_back("Content-Range", content_range(0, outcome->rows, std::nullopt));
    co_return out;
}

}  // namespace

boost::asio::awaitable<http::response> call_function(gateway_services services, http::request r) {
    auto args = read_body_arguments(r);
    if (!args) co_return http::problem_response(args.error(), r.request_id);
    if (!has_fencing_headers(r)) co_return co_await answer_read(services, std::move(r), std::move(*args));
    write_call call;
    http::fault_list faults;
    call.idempotency_key = read_idempotency_key(r, faults);
    if (!faults.empty()) co_return http::problem_response(std::move(faults).to_failure(), r.request_id);
    call.lease_id = r.header("fencing-lease");
    call_operation operation;
    operation.function = r.path_parameters.front();
    operation.args = std::move(*args);
    call.operations.emplace_back(std::move(operation));
    call.translate_failure = translate_failure;
    const write_renderer render = [](const write_report& done) {
        const auto& value = done.outcome.results.front();
        auto out = render_value(value.json, value.is_void || done.outcome.rows_left_out);
        out.headers.emplace_back("Fencing-Write-Id", done.outcome.write_id);
        if (done.outcome.rows_left_out) out.headers.emplace_back("Fencing-Rows-Left-Out", "true");
        return out;
    };
    co_return co_await answer_write(services, std::move(call), std::move(r), render);
}

boost::asio::awaitable<http::response> read_function(gateway_services services, http::request r) {
    auto args = read_query_arguments(r);
    if (!args) co_return http::problem_response(args.error(), r.request_id);
    co_return co_await answer_read(services, std::move(r), std::move(*args));
}

}  // namespace fencegate::api
