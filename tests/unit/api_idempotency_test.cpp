#include <gateway/api/writes/idempotency.hpp>
#include <gateway/api/writes/write_body.hpp>
#include <gateway/http/codec/json_io.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <string_view>

namespace fencegate::api {
namespace {

http::request with_json(std::string body) {
    http::request r;
    r.headers.emplace_back("content-type", "application/json");
    r.body = std::move(body);
    r.principal = "orders";
    return r;
}

TEST(api_idempotency, fingerprint_then_of_every_part_of_the_request) {
    auto r = with_json("{}");
    r.verb = http::method::post;
    r.path = "/v1/writes";
    const auto fingerprint = [](const http::request& request) {
        return make_idempotency_key("k", request, request.body, "", std::chrono::milliseconds(1)).fingerprint;
    };
    const auto same = r;
    EXPECT_EQ(fingerprint(r), fingerprint(same));
    EXPECT_EQ(fingerprint(r).size(), 64U);
    std::set<std::string> others{fingerprint(r)};
    for (int i = 0; i < 6; ++i) {
        auto other = r;
        if (i == 0) other.body = "{ }";
        if (i == 1) other.path = "/v1/tables/a";
        if (i == 2) other.query = "x=1";
        if (i == 3) other.verb = http::method::patch;
        if (i == 4) other.headers.emplace_back("prefer", "return=minimal");
        if (i == 5) other.headers = {{"prefer", "return=minimal"}, {"prefer", "count=exact"}};
        others.insert(fingerprint(other));
    }
    EXPECT_EQ(others.size(), 7U);
    r.query = "b=2&a=1&a=0";
    auto reordered = r;
    reordered.query = "a=0&a=1&b=2";
    EXPECT_EQ(fingerprint(r), fingerprint(reordered));
}

TEST(api_idempotency, fingerprint_text_does_not_depend_on_order_of_members) {
    const auto text_of = [](std::string_view body) { return fingerprint_text_of(http::parse_json(body).value()); };
    EXPECT_EQ(text_of(R"({"b":{"y":1.50,"x":[1,2]},"a":null})"), text_of(R"( {"a":null, "b":{"x":[1,2],"y":1.50}})"));
    const std::set<std::string> others{text_of(R"({"a":[1,2]})"),         text_of(R"({"a":[2,1]})"),
                                       text_of(R"({"a":[1,[2]]})"),       text_of(R"({"a":["1",2]})"),
                                       text_of(R"({"a":1.5})"),           text_of(R"({"a":1.50})"),
                                       text_of(R"({"a":{"b":1},"c":2})"), text_of(R"({"a":{"b":1,"c":2}})")};
    EXPECT_EQ(others.size(), 8U);
}

TEST(api_idempotency, fingerprint_text_other_lease_or_deadline_then_equal) {
    const auto fingerprint_text_of = [](const std::string& body) {
        auto r = with_json(body);
        r.headers.emplace_back("idempotency-key", "k");
        const auto call = parse_write_body(r, lockcore::config{});
        return call ? call->fingerprint_text : std::string("none");
    };
    const std::string operations = R"("operations":[{"call":"f","args":{"n":1.50}}])";
    const std::string own = R"({"lease":{"resource":"a"},)" + operations + "}";
    const std::string under_given_lease = fingerprint_text_of("{" + operations + "}");
    EXPECT_EQ(fingerprint_text_of(R"({"lease_id":"L",)" + operations + "}"), under_given_lease);
    EXPECT_EQ(fingerprint_text_of(R"({"lease_id":"M", )" + operations + "}"), under_given_lease);
    EXPECT_EQ(fingerprint_text_of("{" + operations + R"(,"lease_id":"M"})"), under_given_lease);
    EXPECT_EQ(
        fingerprint_text_of(R"({"lease":{"resource":"a","ttl_ms":1000,"wait_ms":5,"owner":"o"},)" + operations + "}"),
        fingerprint_text_of(own));
    EXPECT_EQ(fingerprint_text_of("{" + operations + R"(,"lease":{"owner":"p","resources":["b","a"]}})"),
              fingerprint_text_of(R"({"lease":{"resources":["a","b"]},)" + operations + "}"));
    std::set<std::string> others{under_given_lease, fingerprint_text_of(own)};
    others.insert(fingerprint_text_of(R"({"lease":{"resource":"b"},)" + operations + "}"));
    others.insert(fingerprint_text_of(R"({"lease":{"resources":["a","b"]},)" + operations + "}"));
    others.insert(fingerprint_text_of(R"({"lease_id":"L","operations":[{"call":"f","args":{"n":1.5}}]})"));
    others.insert(fingerprint_text_of(R"({"lease_id":"L","then":"release",)" + operations + "}"));
    others.insert(fingerprint_text_of(R"({"lease_id":"L","require_live":true,)" + operations + "}"));
    EXPECT_EQ(others.size(), 7U);
    EXPECT_FALSE(others.contains("none"));
}

TEST(api_idempotency, key_in_use_then_refused_until_call_ends) {
    running_keys keys;
    auto first = keys.enter("p", "k");
    EXPECT_TRUE(first);
    EXPECT_FALSE(keys.enter("p", "k"));
    EXPECT_TRUE(keys.enter("q", "k")) << "another principal's";
    first.reset();
    EXPECT_TRUE(keys.enter("p", "k"));
}

}  // namespace
}  // namespace fencegate::api
