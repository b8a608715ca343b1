#include <gateway/api/tables/tables.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/tables/table_parameters.hpp>
#include <gateway/api/tables/table_request.hpp>
#include <gateway/api/writes/fencing.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/pg/database.hpp>

namespace fencegate::api {
namespace {

http::response render_change(bool created, const preferences& preferred, const answer_form& form,
                             const write_report& done) {
    const auto& changed = done.outcome.results.front();
    http::response out;
    const bool left_out = done.outcome.rows_left_out;
    out.status = created ? 201 : preferred.representation.value_or(false) && !left_out ? 200 : 204;
    out.content_type = form.content_type;
    out.body = changed.json;
    if (form.single && !out.body.empty()) unwrap_single(out.body);
    out.headers.emplace_back("Content-Range", "*/" + std::to_string(changed.rows_affected));
    out.headers.emplace_back("Fencing-Write-Id", done.outcome.write_id);
    if (left_out) out.headers.emplace_back("Fencing-Rows-Left-Out", "true");
    if (!preferred.applied.empty()) out.headers.emplace_back("Preference-Applied", preferred.applied);
    return out;
}

}  // namespace

result<http::response> render_rows(read_outcome outcome, std::int64_t offset, const preferences& preferred,
                                   const answer_form& form) {
    if (form.single && outcome.rows != 1) return not_one_row(outcome.rows, "no row was sent");
    if (form.single) unwrap_single(outcome.json);
    const bool part = outcome.total && (offset > 0 || outcome.rows < *outcome.total);
    auto out = http::json_response(std::move(outcome.json), part && outcome.rows > 0 ? 206 : 200);
    out.content_type = form.content_type;
    out.memory = std::move(outcome.memory);
    out.headers.emplace_back("Content-Range", content_range(offset, outcome.rows, outcome.total));
    if (!preferred.applied.empty()) out.headers.emplace_back("Preference-Applied", preferred.applied);
    return out;
}

std::string content_range(std::int64_t offset, std::int64_t rows, std::optional<std::int64_t> total) {
    const auto size = total ? std::to_string(*total) : "*";
    if (rows == 0) return "*/" + size;
    return std::to_string(offset) + "-" + std::to_string(offset + rows - 1) + "/" + size;
}

result<std::optional<read_fence>> authorize_read(const lockcore::lock_manager& locks, const http::request& r) {
    const auto exposed = r.rights->require_exposed(r.path_parameters.front());
    if (!exposed) return exposed.error();
    if (!has_fencing_headers(r)) {
        const auto allowed = r.rights->require(scope::writes);
        if (!allowed) return allowed.error();
        return std::optional<read_fence>();
    }
    auto claims = open_lease_or_token(locks, r.header("fencing-lease"), r);
    if (!claims) return claims.error();
    auto initiator = make_actor(*claims, r);
    return std::optional(read_fence{std::move(claims->resources), claims->token, std::move(initiator)});
}

http::awaitable_response read_table(const gateway_services& services, http::request r) {
    const auto preferred = parse_preferences(r);
    const auto form = parse_answer_form(r);
    if (!form) co_return form.error();
    auto query = parse_table_query(r, preferred, services.settings.postgres.rows_max);
    if (!query) co_return query.error();
    for (const auto& name : embedded_names(query->select)) {
        const auto exposed = r.rights->require_exposed(name);
        if (!exposed) co_return exposed.error();
    }
    auto fence = authorize_read(services.locks, r);
    if (!fence) co_return fence.error();
    const auto offset = query->offset;
    read_request wanted{std::move(*query), std::move(*fence), r.rights->database(), form->format};
    auto outcome = co_await services.database.read_rows(r.principal, std::move(wanted), r.deadline);
    if (!outcome) co_return outcome.error();
    co_return render_rows(std::move(*outcome), offset, preferred, *form);
}

http::awaitable_response write_table(const gateway_services& services, http::request r) {
    auto preferred = parse_preferences(r);
    auto form = parse_answer_form(r);
    if (!form) co_return form.error();
    auto call = parse_table_write(r, preferred, *form, services.settings.postgres.rows_max);
    if (!call) co_return call.error();
    const bool created = r.verb == http::method::post;
    const write_renderer render = [created, preferred, form = std::move(*form)](const write_report& done) {
        return render_change(created, preferred, form, done);
    };
    co_return co_await answer_write(services, std::move(*call), std::move(r), render);
}

}  // namespace fencegate::api
