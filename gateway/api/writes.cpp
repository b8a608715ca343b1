#include <gateway/api/writes.hpp>

#include <gateway/api/lease_access.hpp>
#include <gateway/api/lock_failures.hpp>
#include <gateway/api/write_body.hpp>
#include <gateway/http/json_io.hpp>
#include <gateway/http/problem.hpp>
#include <gateway/pg/pool.hpp>
#include <gateway/runtime/random.hpp>

#include <lockcore/lock_manager.hpp>

namespace fencegate::api {
namespace {

void append_result(std::string& out, const operation_result& result) {
    http::object_writer item(out);
    if (result.is_call) {
        item.raw("value", result.json.empty() ? "null" : result.json);
    } else {
        item.number("rows_affected", result.rows_affected);
        if (!result.json.empty()) item.raw("rows", result.json);
    }
    item.end();
}

write_request make_write(write_body body, lockcore::lease_claims claims, const http::request& r) {
    write_request out;
    out.write_id = runtime::uuid_v7();
    out.by = acting(claims, r);
    out.resources = std::move(claims.resources);
    out.token = claims.token;
    out.operations = std::move(body.operations);
    out.return_rows = body.return_rows;
    return out;
}

}  // namespace

std::string render_write(std::string_view write_id, lockcore::fencing_token token, const write_outcome& outcome) {
    std::size_t size = 256;
    for (const auto& result : outcome.results)
        size += 48 + result.json.size();
    std::string text;
    text.reserve(size);
    http::object_writer out(text);
    out.boolean("applied", true).text("write_id", write_id).key("fences");
    text += '[';
    for (const fence_state& fence : outcome.fences) {
        if (&fence != outcome.fences.data()) text += ',';
        http::object_writer item(text);
        item.text("resource", fence.resource).number("fencing_token", lockcore::value_of(token));
        item.number("last_fencing_token", fence.last_fencing_token).end();
    }
    text += ']';
    out.key("results");
    text += '[';
    for (const operation_result& result : outcome.results) {
        if (&result != outcome.results.data()) text += ',';
        append_result(text, result);
    }
    text += ']';
    out.end();
    return text;
}

boost::asio::awaitable<http::response> apply_write(services with, http::request r) {
    auto body = parse_write_body(r);
    if (!body) co_return http::problem_response(body.error(), r.request_id);
    auto claims = open_lease(with, body->lease_id, r);
    if (!claims) co_return http::problem_response(claims.error(), r.request_id);
    if (body->require_live) {
        const auto seen = co_await with.locks.inspect(*claims);
        if (!seen) co_return http::problem_response(to_failure(seen.error()), r.request_id);
    }
    const lockcore::fencing_token token = claims->token;
    write_request write = make_write(std::move(*body), std::move(*claims), r);
    const std::string write_id = write.write_id;
    const auto outcome = co_await with.database.write(std::move(write), r.deadline);
    if (!outcome) {
        failure f = outcome.error();
        f.facts["write_id"] = write_id;
        co_return http::problem_response(f, r.request_id);
    }
    co_return http::json_response(render_write(write_id, token, *outcome));
}

}  // namespace fencegate::api
