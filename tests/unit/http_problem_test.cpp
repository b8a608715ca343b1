#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>

#include <gtest/gtest.h>

#include <set>

namespace fencegate::http {
namespace {

struct expected_row {
    errc code;
    const char* slug;
    unsigned status;
    bool retry;
};

/// docs/http-api.md, "Errors".
constexpr expected_row api_table[] = {
    {errc::invalid_request, "invalid-request", 400, false},
    {errc::unauthenticated, "unauthenticated", 401, false},
    {errc::forbidden, "forbidden", 403, false},
    {errc::resource_not_covered, "resource-not-covered", 403, false},
    {errc::shared_lease, "shared-lease", 403, false},
    {errc::lease_not_authentic, "lease-not-authentic", 403, false},
    {errc::misdirected_request, "misdirected-request", 421, false},
    {errc::not_found, "not-found", 404, false},
    {errc::method_not_allowed, "method-not-allowed", 405, false},
    {errc::not_acceptable, "not-acceptable", 406, false},
    {errc::too_large, "too-large", 413, false},
    {errc::header_too_large, "header-too-large", 431, false},
    {errc::unsupported_media_type, "unsupported-media-type", 415, false},
    {errc::expectation_failed, "expectation-failed", 409, false},
    {errc::constraint_violation, "constraint-violation", 409, false},
    {errc::idempotency_in_progress, "idempotency-in-progress", 409, true},
    {errc::renewals_exhausted, "renewals-exhausted", 409, false},
    {errc::write_conflict, "write-conflict", 409, false},
    {errc::lease_lost, "lease-lost", 410, false},
    {errc::stale_fencing_token, "stale-fencing-token", 412, false},
    {errc::fencing_required, "fencing-required", 428, false},
    {errc::unprocessable, "unprocessable", 422, false},
    {errc::idempotency_mismatch, "idempotency-mismatch", 422, false},
    {errc::resource_locked, "resource-locked", 423, false},
    {errc::too_many_requests, "too-many-requests", 429, true},
    {errc::too_many_waiters, "too-many-waiters", 429, true},
    {errc::no_quorum, "no-quorum", 503, true},
    {errc::storage_unavailable, "storage-unavailable", 503, true},
    {errc::overloaded, "overloaded", 503, true},
    {errc::shutting_down, "shutting-down", 503, true},
    {errc::internal_error, "internal-error", 500, false},
};

std::string header_of(const response& r, std::string_view name) {
    for (const auto& [key, value] : r.headers) {
        if (key == name) return value;
    }
    return {};
}

TEST(http_problem, kept_outcome_then_header_says_so) {
    failure f = make_failure(errc::constraint_violation, "why");
    EXPECT_EQ(header_of(problem_response(f, "r"), "Idempotency-Replayed"), "");
    f.replayed = true;
    EXPECT_EQ(header_of(problem_response(f, "r"), "Idempotency-Replayed"), "true");
}

TEST(http_problem, every_code_then_slug_and_status_of_the_contract) {
    ASSERT_EQ(problem_kinds().size(), std::size(api_table));
    std::set<std::string_view> slugs;
    for (const auto& row : api_table) {
        const response r = problem_response(make_failure(row.code, "why"), "id-1");
        EXPECT_EQ(r.status, row.status) << row.slug;
        EXPECT_EQ(r.content_type, "application/problem+json");
        const auto body = parse_json(r.body);
        ASSERT_TRUE(body) << r.body;
        EXPECT_EQ(body->at("type").as_string(), std::string("/problems/") + row.slug);
        EXPECT_EQ(body->at("status").as_int64(), row.status);
        EXPECT_EQ(body->at("detail").as_string(), "why");
        EXPECT_EQ(body->at("request_id").as_string(), "id-1");
        EXPECT_FALSE(body->at("title").as_string().empty());
        EXPECT_EQ(header_of(r, "Retry-After").empty(), !row.retry) << row.slug;
        EXPECT_TRUE(slugs.insert(kind_of(row.code).slug).second);
    }
}

TEST(http_problem, faulty_fields_then_detail_has_the_first) {
    const auto detail_of = [](failure f) {
        return std::string(parse_json(problem_response(f, "id-1").body)->at("detail").as_string());
    };
    failure f = invalid_field("/ttl_ms", "has to be an integer");
    EXPECT_EQ(detail_of(f), "The request has a faulty field: /ttl_ms has to be an integer.");
    f.detail = "The request has 2 faulty fields.";
    f.errors.push_back({"Idempotency-Key", "is empty"});
    EXPECT_EQ(detail_of(f), "The request has 2 faulty fields: /ttl_ms has to be an integer (1 more in errors).");
    failure whole = make_failure(errc::invalid_request, "The body is not valid JSON.");
    whole.errors.push_back({"", "the body is empty"});
    EXPECT_EQ(detail_of(whole), "The body is not valid JSON: the body is empty.");
    failure value = make_failure(errc::unprocessable, "invalid input syntax for type integer: \"x\"");
    value.errors.push_back({"/operations/0/set/stock", value.detail});
    EXPECT_EQ(detail_of(value), value.detail);
}

TEST(http_problem, value_of_the_wrong_type_has_a_fitting_title) {
    const response r =
        problem_response(make_failure(errc::unprocessable, "invalid input syntax for type integer: \"x\""), "id");
    EXPECT_EQ(parse_json(r.body)->at("title").as_string(), "The database refused this");
}

TEST(http_problem, failure_with_everything_then_all_members) {
    failure f = make_failure(errc::resource_locked, "a \"quoted\" word");
    f.facts["remaining_ms"] = 1234;
    f.facts["nodes"] = boost::json::array{"x"};
    f.errors.push_back({"/a", "b"});
    f.errors.push_back({"/c", "d"});
    f.retry_after = std::chrono::milliseconds(1'234);
    f.outcome_unknown = true;
    const response r = problem_response(f, "id");
    EXPECT_EQ(r.body, R"({"type":"/problems/resource-locked","title":"The resource is locked","status":423,)"
                      R"("detail":"a \"quoted\" word: /a b (1 more in errors).",)"
                      R"("request_id":"id","message":"a \"quoted\" word: /a b (1 more in errors).",)"
                      R"("code":"resource-locked","details":"/a b; /c d","hint":")" +
                          std::string(kind_of(errc::resource_locked).explanation) +
                          R"(","outcome_unknown":true,"remaining_ms":1234,"nodes":["x"],)"
                          R"("errors":[{"pointer":"/a","detail":"b"},{"pointer":"/c","detail":"d"}]})");
    EXPECT_EQ(header_of(r, "Retry-After"), "2");
}

TEST(http_problem, code_and_details_of_facts_come_first) {
    const auto members = [](const failure& f) {
        const auto body = *parse_json(problem_response(f, "id").body);
        return std::pair(body.at("code"), body.at("details"));
    };
    failure f = make_failure(errc::constraint_violation, "x");
    f.facts["sqlstate"] = "23505";
    EXPECT_EQ(members(f), std::pair(boost::json::value("23505"), boost::json::value()));
    f.facts["code"] = "PGRST116";
    f.facts["details"] = "The result contains 2 rows";
    f.errors.push_back({"Accept", "why"});
    EXPECT_EQ(members(f), std::pair(boost::json::value("PGRST116"), boost::json::value("The result contains 2 rows")));
}

TEST(http_problem, hint_of_failure_replaces_that_of_its_kind) {
    failure f = make_failure(errc::storage_unavailable, "x");
    f.facts["hint"] = "Ask an operator.";
    f.may_be_repeated = false;
    const response r = problem_response(f, "id");
    EXPECT_EQ(parse_json(r.body)->at("hint").as_string(), "Ask an operator.");
    EXPECT_EQ(r.body.find("hint"), r.body.rfind("hint")) << "once";
    EXPECT_EQ(header_of(r, "Retry-After"), "");
}

TEST(http_problem, retry_after_below_a_second_then_one) {
    failure f = make_failure(errc::resource_locked, "x");
    f.retry_after = std::chrono::milliseconds(0);
    EXPECT_EQ(header_of(problem_response(f, "id"), "Retry-After"), "1");
}

TEST(http_problem, explain_every_slug_then_page_by_accept) {
    for (const auto& problem : problem_kinds()) {
        const auto plain = explain_problem(problem.slug, "*/*");
        ASSERT_TRUE(plain);
        EXPECT_EQ(plain->content_type, "text/plain; charset=utf-8");
        EXPECT_NE(plain->body.find(problem.explanation), std::string::npos);
        const auto html = explain_problem(problem.slug, "text/html,application/xhtml+xml,*/*;q=0.8");
        ASSERT_TRUE(html);
        EXPECT_EQ(html->content_type, "text/html; charset=utf-8");
    }
    EXPECT_EQ(explain_problem("nothing", "").error().code, errc::not_found);
}

}  // namespace
}  // namespace fencegate::http
