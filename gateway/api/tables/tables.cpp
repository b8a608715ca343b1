#include <gateway/api/routes.hpp>

#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/tables/answer_form.hpp>
#include <gateway/api/tables/table_request.hpp>
#include <gateway/api/writes/guarded_write.hpp>
#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_body.hpp>
#include <gateway/domain/table_read.hpp>
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
    add_replayed_header(out, done);
    return out;
}

/// Reads the arguments, and what the fingerprint of an idempotency key covers of them.
result<std::vector<assignment>> read_body_arguments(const http::request& r, std::string& fingerprint_text) {
    if (r.body.empty()) return std::vector<assignment>{};
    auto body = http::parse_object_body(r);
    if (!body) return std::move(body).error();
    if (r.has_header("idempotency-key")) fingerprint_text = fingerprint_text_of(*body);
    http::fault_list faults;
    auto out = take_assignments(*body, "", faults);
    if (!faults.empty()) return std::move(faults).to_failure();
    return out;
}

http::response render_value(std::string json, bool is_void) {
    if (!is_void) return http::json_response(std::move(json));
    http::response out;
    out.status = 204;
    return out;
}

/// Returns a Content-Range such as `0-9/42` or `*/*`.
std::string content_range(std::int64_t offset, std::int64_t rows, std::optional<std::int64_t> total) {
    const auto size = total ? std::to_string(*total) : "*";
    if (rows == 0) return "*/" + size;
    return std::to_string(offset) + "-" + std::to_string(offset + rows - 1) + "/" + size;
}

/// Returns the answer with the rows of a read. Errors: errc::not_acceptable if it has to be one object, and there is
/// another number of rows.
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

/// Checks whether the caller may read the table or function that the path names, and returns the fence that the read
/// has to raise; none if the request has neither lease nor token. A plain read needs the scope `writes` for all
/// resources, a fenced one for those of the lease or token.
///
/// Errors: errc::forbidden · those of open_lease_or_token.
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
    fences_to_raise fences{
        .resources = std::move(claims->resources), .shared = std::move(claims->shared), .token = claims->token};
    return std::optional(read_fence{std::move(fences), std::move(initiator)});
}

http::awaitable_response answer_read(const write_services& services, http::request r, function_query query) {
    const auto preferred = parse_preferences(r);
    const auto form = parse_answer_form(r);
    if (!form) co_return form.error();
    auto fence = authorize_read(services.locks, r);
    if (!fence) co_return fence.error();
    query.function = r.path_parameters.front();
    query.limit = static_cast<std::int64_t>(services.settings.postgres.rows_max);
    query.count = preferred.count != row_count::none;
    const auto offset = query.rows.offset;
    read_request wanted{std::move(query), std::move(*fence), r.rights->database(), form->format};
    auto outcome = co_await services.database.read_rows(r.principal, std::move(wanted), r.deadline);
    if (!outcome) co_return outcome.error();
    const auto most = preferred.max_affected;
    if (most && r.verb == http::method::post && outcome->rows > *most) co_return too_many_rows(*most, outcome->rows);
    const bool is_void = outcome->json.empty() || preferred.representation == false;
    if (outcome->is_set && !is_void) co_return render_rows(std::move(*outcome), offset, preferred, *form);
    auto out = render_value(std::move(outcome->json), is_void);
    if (!is_void) out.content_type = form->content_type;
    out.memory = std::move(outcome->memory);
    if (outcome->is_set)
        out.headers.emplace_back("Content-Range", content_range(offset, outcome->rows, outcome->total));
    if (!preferred.applied.empty()) out.headers.emplace_back("Preference-Applied", preferred.applied);
    co_return out;
}

/// Returns which rows of a set a write is to return; empty: the value as it is.
std::optional<row_selection> wanted_rows(row_selection rows, std::int64_t rows_max, const preferences& preferred,
                                         const answer_form& form) {
    const bool wanted = has_selection(rows, rows_max) || preferred.count != row_count::none || preferred.max_affected ||
                        !form.is_default();
    if (!wanted) return std::nullopt;
    return rows;
}

http::response render_call(const preferences& preferred, const answer_form& form, const write_report& done) {
    const auto& value = done.outcome.results.front();
    const bool left_out = done.outcome.rows_left_out;
    const bool is_void = value.is_void || left_out || preferred.representation == false;
    auto out = render_value(value.json, is_void);
    if (!is_void) out.content_type = form.content_type;
    if (!value.is_call) {
        if (form.single && !out.body.empty()) unwrap_single(out.body);
        const auto total = preferred.count == row_count::none ? value.rows_affected : value.total.value_or(0);
        out.headers.emplace_back("Content-Range", "*/" + std::to_string(total));
    }
    out.headers.emplace_back("Fencing-Write-Id", done.outcome.write_id);
    if (left_out) out.headers.emplace_back("Fencing-Rows-Left-Out", "true");
    if (!preferred.applied.empty()) out.headers.emplace_back("Preference-Applied", preferred.applied);
    add_replayed_header(out, done);
    return out;
}

}  // namespace

http::awaitable_response read_table(const write_services& services, http::request r) {
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

http::awaitable_response write_table(const write_services& services, http::request r) {
    auto preferred = parse_preferences(r);
    auto form = parse_answer_form(r);
    if (!form) co_return form.error();
    auto call = parse_table_write(r, preferred, *form, services.settings.postgres.rows_max);
    if (!call) co_return call.error();
    const bool created = r.verb == http::method::post;
    const auto done = co_await run_write(services, std::move(*call), std::move(r));
    if (!done) co_return translate_write_failure(done.error());
    co_return render_change(created, preferred, *form, *done);
}

http::awaitable_response call_function(const write_services& services, http::request r) {
    const auto rows_max = services.settings.postgres.rows_max;
    write_call call;
    auto args = read_body_arguments(r, call.fingerprint_text);
    if (!args) co_return args.error();
    http::fault_list faults;
    auto given = parse_parameters(r, rows_max, faults);
    refuse_parameters(given, {"on_conflict", "columns"}, faults);
    refuse_embedding(given.rows, faults);
    const bool writes = has_fencing_headers(r);
    if (writes) call.idempotency_key = read_idempotency_key(r, faults);
    if (!faults.empty()) co_return std::move(faults).to_failure();
    if (!writes) {
        function_query query;
        query.args = std::move(*args);
        query.rows = std::move(given.rows);
        co_return co_await answer_read(services, std::move(r), std::move(query));
    }
    const auto preferred = parse_preferences(r);
    auto form = parse_answer_form(r);
    if (!form) co_return form.error();
    call.lease_id = r.header("fencing-lease");
    call.format = form->format;
    if (!form->is_default()) call.accepted_form = form->content_type;
    call_operation called;
    called.function = r.path_parameters.front();
    called.args = std::move(*args);
    called.rows = wanted_rows(std::move(given.rows), static_cast<std::int64_t>(rows_max), preferred, *form);
    operation only(std::move(called));
    limit_rows(only, preferred, *form);
    call.operations.push_back(std::move(only));
    const auto done = co_await run_write(services, std::move(call), std::move(r));
    if (!done) co_return translate_write_failure(done.error());
    co_return render_call(preferred, *form, *done);
}

http::awaitable_response read_function(const write_services& services, http::request r) {
    http::fault_list faults;
    function_query query;
    parse_function_parameters(r, services.settings.postgres.rows_max, query, faults);
    if (!faults.empty()) co_return std::move(faults).to_failure();
    co_return co_await answer_read(services, std::move(r), std::move(query));
}

}  // namespace fencegate::api
