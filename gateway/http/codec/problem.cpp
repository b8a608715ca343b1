#include <gateway/http/codec/problem.hpp>

#include <gateway/http/codec/header_values.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <boost/json/serialize.hpp>

#include <algorithm>
#include <array>

namespace fencegate::http {
namespace {

constexpr std::optional<std::chrono::milliseconds> no_retry{};
constexpr std::optional<std::chrono::milliseconds> soon{1'000};

constexpr std::array<problem_kind, 31> kinds{{
    {errc::invalid_request, "invalid-request", 400, "The request is not valid",
     "The request is malformed. The member errors names each faulty field and says what is wrong with it. Nothing was "
     "done; sending the same request again fails again.",
     no_retry},
    {errc::unauthenticated, "unauthenticated", 401, "No valid credential",
     "Send an API key as 'Authorization: Bearer KEY' or in X-Api-Key, or a token of the identity provider as "
     "'Authorization: Bearer TOKEN'; detail says what is wrong with the one that was sent. Nothing was done.",
     no_retry},
    {errc::forbidden, "forbidden", 403, "Not allowed",
     "The caller lacks a scope for a resource, or may not use a table or function, or the request comes from a page of "
     "another site; detail says which. Nothing was done.",
     no_retry},
    {errc::resource_not_covered, "resource-not-covered", 403, "A row lies outside the lease",
     "The write touched a row of a resource that the lease does not cover, or only shares. The whole call was undone. "
     "Take a lease on that resource; where name_fault says why no resource can have the row's name, change the row, or "
     "how protect() "
     "names it.",
     no_retry},
    {errc::shared_lease, "shared-lease", 403, "The lease is shared",
     "The lease shares its resources with others, so that its holder may read under it and not write. Nothing was "
     "done. Take a lease on what is written that does not share it.",
     no_retry},
    {errc::lease_not_authentic, "lease-not-authentic", 403, "The lease_id is not authentic",
     "The lease_id was not issued by this cluster, or was changed since. Send it back exactly as it was received.",
     no_retry},
    {errc::misdirected_request, "misdirected-request", 421, "Not for this gateway",
     "The request names a host that this gateway does not serve: neither a loopback name or address, nor the address "
     "at which it arrived, nor one of http.allowed_hosts. This check stops DNS rebinding, by which a web page points "
     "its "
     "own host name at this machine. Or a lease_id, a cursor, Last-Event-ID or Fencing-Cell names another cell, "
     "named_cell, than that of this gateway: send the request there. Nothing was done.",
     no_retry},
    {errc::not_found, "not-found", 404, "Not found",
     "Nothing that the caller may see has this address or name; detail says what is missing. Tables and functions are "
     "found once they are exposed. A slash in the name of a resource is %2F in a path; behind a proxy that decodes it "
     "use /v1/resource?resource=NAME.",
     no_retry},
    {errc::method_not_allowed, "method-not-allowed", 405, "Method not allowed",
     "The address exists, but not for this method. The header Allow lists the methods that it has.", no_retry},
    {errc::not_acceptable, "not-acceptable", 406, "No acceptable media type",
     "The answer cannot be given in a media type that the header Accept allows. Nothing was done.", no_retry},
    {errc::too_large, "too-large", 413, "Request too large",
     "The body is larger than http.body_max_bytes. Nothing was done.", no_retry},
    {errc::header_too_large, "header-too-large", 431, "Request header too large",
     "The request has more header bytes than http.header_max_bytes or more header fields than http.header_fields_max; "
     "trailers and chunk extensions count too. Nothing was done.",
     no_retry},
    {errc::unsupported_media_type, "unsupported-media-type", 415, "Unsupported media type",
     "Send the body as application/json in UTF-8, without Content-Encoding. Nothing was done.", no_retry},
    {errc::expectation_failed, "expectation-failed", 409, "Not as expected",
     "An operation with expect_rows found another number of rows, or a lease to be revoked has another token than "
     "expected_token. Nothing was changed. Read the current state, then decide.",
     no_retry},
    {errc::constraint_violation, "constraint-violation", 409, "A constraint was violated",
     "A constraint of the database refused a value; sqlstate and detail say which. The whole call was undone.",
     no_retry},
    {errc::idempotency_in_progress, "idempotency-in-progress", 409, "The same call is still under way",
     "A call with the same Idempotency-Key has not ended yet. Nothing was done; repeat the call to get the outcome of "
     "the first one.",
     soon},
    {errc::renewals_exhausted, "renewals-exhausted", 409, "The lease is at its limit",
     "The lease was renewed as often, or is held as long, as the configuration allows, or it has as many holds as a "
     "lease may have; detail says which. The lease is unchanged. For another hold release one; for more time acquire a "
     "new lease after this one.",
     no_retry},
    {errc::write_conflict, "write-conflict", 409, "In conflict with another transaction",
     "The write conflicted with another transaction: a serialization failure, a deadlock or a lock timeout. The whole "
     "call was undone; it is safe to repeat it.",
     no_retry},
    {errc::lease_lost, "lease-lost", 410, "The lease is lost",
     "A majority of the nodes no longer holds this lease: it expired, was released or was revoked. It cannot be "
     "restored. Acquire a new one and read again what the work was based on.",
     no_retry},
    {errc::stale_fencing_token, "stale-fencing-token", 412, "A newer holder has written",
     "The database has seen a higher fencing token for the resource, so a newer holder is active. Nothing was "
     "changed, and the history records the refusal. Stop working under this lease.",
     no_retry},
    {errc::fencing_required, "fencing-required", 428, "A lease is required",
     "A write needs a lease. Send its lease_id in the body or in the header Fencing-Lease.", no_retry},
    {errc::unprocessable, "unprocessable", 422, "The database refused this",
     "The request names an unknown table, column or function, a value does not fit its type, a function refused the "
     "call, or the answer is too large; detail says which. The whole call was undone.",
     no_retry},
    {errc::idempotency_mismatch, "idempotency-mismatch", 422, "The idempotency key can't be used again",
     "The Idempotency-Key was sent before with another request, whose outcome is still kept; or it belongs to a hold "
     "that was released while other holds keep the lease; or the request with this key was cancelled; detail says "
     "which. Nothing was done; use a new key for a new request.",
     no_retry},
    {errc::resource_locked, "resource-locked", 423, "The resource is locked",
     "Another lease holds the resource. remaining_ms says for how long at most; a retry with wait_ms waits in the "
     "queue. If nodes is given, the resource's key on these nodes has a value that is no lease, and an operator has to "
     "examine it.",
     no_retry},
    {errc::too_many_requests, "too-many-requests", 429, "Too many requests",
     "A limit of the address or of the principal is reached; detail says which, and the field RateLimit what is left. "
     "Wait as long as Retry-After says, then repeat the call. Nothing was done.",
     soon},
    {errc::too_many_waiters, "too-many-waiters", 429, "Too many callers wait",
     "As many callers wait for a lease as lease.waiters_max allows, or as many of this principal, of this address or "
     "of all as their limit or share allows. Nothing was done.",
     soon},
    {errc::no_quorum, "no-quorum", 503, "Too few lock nodes answered",
     "No majority of the Redis nodes answered; nodes says what each of them did. No lease was granted. A lease that "
     "was "
     "to be renewed may have been extended on some nodes.",
     soon},
    {errc::storage_unavailable, "storage-unavailable", 503, "The database is unavailable",
     "PostgreSQL could not be reached, did not answer in time or could not execute the statement, as detail says, or "
     "lets nothing in until a gateway has set a new floor (cause storage-generation-changed), or a part of the guard "
     "was dropped (cause guard-missing). Nothing was changed, unless outcome_unknown is true.",
     soon},
    {errc::overloaded, "overloaded", 503, "Overloaded", "The gateway's queue is full. Nothing was done; try again.",
     soon},
    {errc::shutting_down, "shutting-down", 503, "Shutting down",
     "This gateway is stopping. Nothing was done; another gateway can serve the call.", soon},
    {errc::internal_error, "internal-error", 500, "Internal error",
     "The gateway failed; its log has the details. Whether anything was done is not known, unless the detail says it.",
     no_retry},
}};

constexpr bool in_order() {
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        if (static_cast<std::size_t>(kinds[i].code) != i) return false;
    }
    return true;
}
static_assert(in_order(), "one row for each value of errc, in its order");

void append_errors(std::string& out, const std::vector<field_error>& errors) {
    out += '[';
    for (const field_error& e : errors) {
        if (&e != errors.data()) out += ',';
        object_writer(out).text("pointer", e.pointer).text("detail", e.detail).end();
    }
    out += ']';
}

/// Returns the detail, extended by the first faulty field and its fault; `errors` has all of them.
std::string detail_of(const failure& f) {
    if (f.errors.empty()) return f.detail;
    const field_error& first = f.errors.front();
    if (first.detail == f.detail) return f.detail;
    std::string out = f.detail;
    if (out.ends_with('.')) out.pop_back();
    out += ": ";
    if (!first.pointer.empty()) out += first.pointer + ' ';
    out += first.detail;
    if (out.ends_with('.')) out.pop_back();
    if (f.errors.size() > 1) out += " (" + std::to_string(f.errors.size() - 1) + " more in errors)";
    return out + '.';
}

std::string text_fact(const failure& f, std::string_view name) {
    const auto* fact = f.facts.if_contains({name.data(), name.size()});
    return fact != nullptr && fact->is_string() ? std::string(fact->as_string()) : std::string();
}

/// Adds the members that PostgREST's errors have. Its client shows them to its callers.
void append_postgrest_members(object_writer& document, const failure& f, const problem_kind& kind,
                              const std::string& message) {
    auto code = text_fact(f, "code");
    if (code.empty()) code = text_fact(f, "sqlstate");
    auto details = text_fact(f, "details");
    if (details.empty()) {
        for (const field_error& e : f.errors)
            details += (details.empty() ? "" : "; ") + e.pointer + (e.pointer.empty() ? "" : " ") + e.detail;
    }
    const auto hint = text_fact(f, "hint");
    document.text("message", message).text("code", code.empty() ? kind.slug : std::string_view(code));
    document.text_or_null("details", details).text("hint", hint.empty() ? kind.explanation : std::string_view(hint));
}

}  // namespace

const problem_kind& kind_of(errc code) {
    return kinds.at(static_cast<std::size_t>(code));
}

std::span<const problem_kind> problem_kinds() {
    return kinds;
}

response problem_response(const failure& f, std::string_view request_id) {
    const problem_kind& kind = kind_of(f.code);
    response out;
    out.status = kind.status;
    out.problem = kind.slug;
    out.content_type = "application/problem+json";
    out.problem_detail = replace_invalid_utf8(detail_of(f));
    if (const auto* resource = f.facts.if_contains("resource"); resource != nullptr && resource->is_string())
        out.problem_resource = std::string(resource->as_string());
    out.problem_in_history = f.in_history;
    out.body.reserve(256 + f.detail.size());

    object_writer document(out.body);
    document.key("type");
    out.body += "\"/problems/";
    out.body += kind.slug;
    out.body += '"';
    document.text("title", kind.title)
        .number("status", kind.status)
        .text("detail", out.problem_detail)
        .text("request_id", request_id);
    append_postgrest_members(document, f, kind, out.problem_detail);
    if (f.outcome_unknown) document.boolean("outcome_unknown", true);
    for (const auto& fact : f.facts) {
        if (fact.key() == "code" || fact.key() == "details" || fact.key() == "hint") continue;
        document.raw({fact.key().data(), fact.key().size()}, boost::json::serialize(fact.value()));
    }
    if (!f.errors.empty()) {
        document.key("errors");
        append_errors(out.body, f.errors);
    }
    document.end();
    // Paths and headers, which a refusal may cite, can have any bytes.
    out.body = replace_invalid_utf8(std::move(out.body));

    if (f.replayed) out.headers.emplace_back("Idempotency-Replayed", "true");
    const auto retry_after = f.retry_after ? f.retry_after : kind.retry_after;
    if (retry_after && f.may_be_repeated) {
        const auto seconds = std::chrono::ceil<std::chrono::seconds>(*retry_after);
        out.headers.emplace_back("Retry-After", std::to_string(std::max<long long>(seconds.count(), 1)));
    }
    return out;
}

result<response> explain_problem(std::string_view slug, std::string_view accept) {
    for (const problem_kind& kind : kinds) {
        if (kind.slug != slug) continue;
        const std::string heading = std::to_string(kind.status) + " " + std::string(kind.slug);
        response out;
        // Plain text comes first because terminals send */*. A browser names text/html.
        if (preferred_type(accept, {"text/plain", "text/html"}) == std::size_t{1}) {
            out.content_type = "text/html; charset=utf-8";
            out.body.append("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>")
                .append(heading)
                .append("</title></head>\n<body><h1>")
                .append(kind.title)
                .append("</h1>\n<p><code>")
                .append(heading)
                .append("</code></p>\n<p>")
                .append(kind.explanation)
                .append("</p></body></html>\n");
        } else {
            out.content_type = "text/plain; charset=utf-8";
            out.body = heading + "\n" + std::string(kind.title) + "\n\n" + std::string(kind.explanation) + "\n";
        }
        return out;
    }
    return make_failure(errc::not_found, "There is no problem of this name.");
}

}  // namespace fencegate::http
