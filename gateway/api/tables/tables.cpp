#include <gateway/api/tables/tables.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/tables/preferences.hpp>
#include <gateway/api/tables/table_request.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/pg/read/read_executor.hpp>

namespace fencegate::api {
namespace {

http::response render_rows(const table_query& query, read_outcome outcome, const preferences& wishes) {
    const bool part = outcome.total && (query.offset > 0 || outcome.rows < *outcome.total);
    auto out = http::json_response(std::move(outcome.json), part && outcome.rows > 0 ? 206 : 200);
    out.memory = std::move(outcome.memory);
    out.headers.emplace_back("Content-Range", content_range(query.offset, outcome.rows, outcome.total));
    if (!wishes.applied.empty()) out.headers.emplace_back("Preference-Applied", wishes.applied);
    return out;
}

http::response render_change(bool created, const preferences& wishes, const write_report& done) {
    const auto& changed = done.outcome.results.front();
    http::response out;
    const bool left_out = done.outcome.rows_left_out;
    out.status = created ? 201 : wishes.representation && !left_out ? 200 : 204;
    out.body = changed.json;
    out.headers.emplace_back("Content-Range", "*/" + std::to_string(changed.rows_affected));
    out.headers.emplace_back("Fencing-Write-Id", done.outcome.write_id);
    if (left_out) out.headers.emplace_back("Fencing-Rows-Left-Out", "true");
    if (!wishes.applied.empty()) out.headers.emplace_back("Preference-Applied", wishes.applied);
    return out;
}

}  // namespace

std::string content_range(std::int64_t offset, std::int64_t rows, std::optional<std::int64_t> total) {
    const auto all = total ? std::to_string(*total) : "*";
    if (rows == 0) return "*/" + all;
    return std::to_string(offset) + "-" + std::to_string(offset + rows - 1) + "/" + all;
}

result<std::optional<read_fence>> fence_of_read(services with, const http::request& r) {
    if (!brings_fencing(r)) return std::optional<read_fence>();
    auto claims = open_fencing(with, r.header("fencing-lease"), r);
    if (!claims) return claims.error();
    auto by = acting(*claims, r);
    return std::optional(read_fence{std::move(claims->resources), claims->token, std::move(by)});
}

boost::asio::awaitable<http::response> read_table(services with, http::request r) {
    const auto wishes = parse_preferences(r);
    auto query = parse_table_query(r, wishes, with.settings.postgres.rows_max);
    if (!query) co_return http::problem_response(query.error(), r.request_id);
    auto fence = fence_of_read(with, r);
    if (!fence) co_return http::problem_response(fence.error(), r.request_id);
    read_request wanted{*query, std::move(*fence)};
    auto outcome = co_await with.reads.read(r.principal, std::move(wanted), r.deadline);
    if (!outcome) co_return http::problem_response(outcome.error(), r.request_id);
    co_return render_rows(*query, std::move(*outcome), wishes);
}

boost::asio::awaitable<http::response> write_table(services with, http::request r) {
    auto wishes = parse_preferences(r);
    auto call = parse_table_write(r, wishes, with.settings.postgres.rows_max);
    if (!call) co_return http::problem_response(call.error(), r.request_id);
    const bool created = r.verb == http::method::post;
    const write_renderer render = [created, wishes](const write_report& done) {
        return render_change(created, wishes, done);
    };
    co_return co_await carry_out_write(with, std::move(*call), std::move(r), render);
}

}  // namespace fencegate::api
