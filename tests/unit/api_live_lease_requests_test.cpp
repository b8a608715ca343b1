// GET /v1/leases, the requests of operators, and Last-Event-ID.
#include <gateway/api/history/history_request.hpp>
#include <gateway/api/leases/lease_request.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace fencegate::api {
namespace {

using ordered_names = std::vector<std::string>;

ordered_names ordered_pointers(const failure& f) {
    ordered_names out;
    for (const auto& error : f.errors)
        out.push_back(error.pointer);
    return out;
}

TEST(api_lease_listing, nothing_given_then_the_first_hundred) {
    const auto query = parse_lease_listing("", 2);
    ASSERT_TRUE(query);
    EXPECT_EQ(query->prefix, "");
    EXPECT_EQ(query->after, "");
    EXPECT_EQ(query->limit, 100U);
}

TEST(api_lease_listing, cursor_continues_in_its_cell) {
    const auto query =
        parse_lease_listing("resource_prefix=a%2F&limit=1000&cursor=" + make_listing_cursor("a/b", 2), 2);
    ASSERT_TRUE(query);
    EXPECT_EQ(query->prefix, "a/");
    EXPECT_EQ(query->after, "a/b");
    EXPECT_EQ(query->limit, 1'000U);
    EXPECT_EQ(parse_lease_listing("cursor=2~YQ", 1).error().code, errc::misdirected_request);
    EXPECT_EQ(parse_lease_listing("cursor=YQ", 2).error().code, errc::misdirected_request) << "of cell 0";
}

TEST(api_lease_listing, cursor_after_any_name_continues_there) {
    for (const lockcore::cell_id cell : {0, 7}) {
        for (const char* name : {"a", "7~a", "~", "a b+c&d=e", "ä%20"}) {
            const auto query = parse_lease_listing("cursor=" + make_listing_cursor(name, cell), cell);
            ASSERT_TRUE(query) << name;
            EXPECT_EQ(query->after, name);
        }
    }
}

TEST(api_lease_listing, faults_then_all_reported_by_name) {
    EXPECT_EQ(ordered_pointers(parse_lease_listing("resource_prefix=a//&cursor=x~a&limit=0&x=1", 2).error()),
              (ordered_names{"x", "resource_prefix", "cursor", "limit"}));
}

http::request make_order(std::string body, scope granted = scope::operate) {
    rights_config given;
    given.scopes = {granted};
    http::request out;
    out.verb = http::method::post;
    out.path_parameters = {"inventory/sku-1"};
    out.headers.emplace_back("content-type", "application/json");
    out.rights = std::make_shared<const http::rights>(given);
    out.body = std::move(body);
    return out;
}

TEST(api_operator_order, resource_of_the_path_or_of_the_query) {
    auto r = make_order(R"({"reason":"stuck"})");
    EXPECT_EQ(parse_operator_order(r, operator_request::revoke_lease)->resource.str(), "inventory/sku-1");
    r.path_parameters.clear();
    EXPECT_EQ(ordered_pointers(parse_operator_order(r, operator_request::revoke_lease).error()),
              ordered_names{"resource"});
    r.query = "resource=a/b+c%2B";
    EXPECT_EQ(parse_operator_order(r, operator_request::revoke_lease)->resource.str(), "a/b c+");
    r.query = "resource=a&x=1";
    EXPECT_EQ(ordered_pointers(parse_operator_order(r, operator_request::revoke_lease).error()), ordered_names{"x"});
    r.query = "resource=a//b";
    EXPECT_EQ(ordered_pointers(parse_operator_order(r, operator_request::revoke_lease).error()),
              ordered_names{"resource"});
}

TEST(api_operator_order, each_request_has_its_token) {
    const auto revoked = parse_operator_order(make_order(R"({"reason":"stuck"})"), operator_request::revoke_lease);
    ASSERT_TRUE(revoked);
    EXPECT_EQ(revoked->resource.str(), "inventory/sku-1");
    EXPECT_EQ(revoked->reason, "stuck");
    EXPECT_FALSE(revoked->token);
    const auto repaired = parse_operator_order(make_order(R"({"reason":"restored","last_fencing_token":0})"),
                                               operator_request::repair_fence);
    ASSERT_TRUE(repaired);
    EXPECT_EQ(repaired->token, 0U);
}

TEST(api_operator_order, faults_then_all_reported_by_pointer) {
    EXPECT_EQ(
        ordered_pointers(parse_operator_order(make_order(R"({"reason":" ","expected_token":0,"last_fencing_token":1})"),
                                              operator_request::revoke_lease)
                             .error()),
        (ordered_names{"/last_fencing_token", "/reason", "/expected_token"}));
    EXPECT_EQ(ordered_pointers(parse_operator_order(make_order("{}"), operator_request::repair_fence).error()),
              (ordered_names{"/reason", "/last_fencing_token"}));
}

TEST(api_operator_order, right_is_checked_before_the_body) {
    const auto refused = parse_operator_order(make_order("{", scope::history), operator_request::revoke_lease);
    EXPECT_EQ(refused.error().code, errc::forbidden);
}

TEST(api_event_id, names_an_event_of_its_cell) {
    EXPECT_EQ(parse_event_id("12", 0).value(), 12);
    EXPECT_EQ(parse_event_id("2~12", 2).value(), 12);
    EXPECT_EQ(parse_event_id("0", 2).value(), 0) << "the beginning is of every cell";
    EXPECT_EQ(parse_event_id("12", 2).error().code, errc::misdirected_request);
    EXPECT_EQ(parse_event_id("2~0", 1).error().code, errc::misdirected_request);
    for (const char* text : {"", "-1", "-0", "01", "1x", "~1", "2~", "2~-0", "9223372036854775808"})
        EXPECT_EQ(parse_event_id(text, 2).error().code, errc::invalid_request) << text;
}

}  // namespace
}  // namespace fencegate::api
