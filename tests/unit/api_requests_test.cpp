#include "fault_names.hpp"

#include <gateway/api/leases/lease_request.hpp>
#include <gateway/api/writes/write_body.hpp>

#include <gtest/gtest.h>

#include <array>
#include <chrono>

namespace fencegate::api {
namespace {

http::request with_body(std::string body) {
    http::request r;
    r.headers.emplace_back("content-type", "application/json");
    r.body = std::move(body);
    r.principal = "orders";
    r.origin = "4bf92f3577b34da6a3ce929d0e0e4736";
    return r;
}

result<write_call> parse_write(const http::request& r) {
    return parse_write_body(r, lockcore::config{});
}

result<write_call> parse_write(std::string body) {
    return parse_write(with_body(std::move(body)));
}

result<lease_request> parse_lease(std::string body) {
    return parse_lease_request(with_body(std::move(body)), lockcore::config{});
}

TEST(api_lease_request, full_body_then_all_fields) {
    const auto got = parse_lease(
        R"({"resource":"inventory/sku-1","ttl_ms":5000,"wait_ms":2000,"owner":"orders-7f3a","fence_on_grant":true})");
    ASSERT_TRUE(got);
    ASSERT_EQ(got->acquire.resources.size(), 1U);
    EXPECT_EQ(got->acquire.resources[0].str(), "inventory/sku-1");
    EXPECT_EQ(got->acquire.ttl.count(), 5000);
    EXPECT_EQ(got->acquire.wait.count(), 2000);
    EXPECT_EQ(got->acquire.holder.principal, "orders");
    EXPECT_EQ(got->acquire.holder.owner, "orders-7f3a");
    EXPECT_EQ(got->acquire.origin, "4bf92f3577b34da6a3ce929d0e0e4736");
    EXPECT_TRUE(got->fence_on_grant);
}

TEST(api_lease_request, resource_alone_then_defaults) {
    const auto got = parse_lease(R"({"resource":"a"})");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->acquire.ttl, lockcore::config{}.default_ttl);
    EXPECT_EQ(got->acquire.wait.count(), 0);
    EXPECT_EQ(got->acquire.holder.owner, "");
    EXPECT_FALSE(got->fence_on_grant);
}

TEST(api_lease_request, several_resources_then_order_kept) {
    const auto got = parse_lease(R"({"resources":["b","a"]})");
    ASSERT_TRUE(got);
    ASSERT_EQ(got->acquire.resources.size(), 2U);
    EXPECT_EQ(got->acquire.resources[0].str(), "b");
}

TEST(api_lease_request, resources_faulty_then_refused_with_pointer) {
    std::string many = R"({"resources":[)";
    for (int i = 0; i < 65; ++i)
        many += (i ? ",\"r" : "\"r") + std::to_string(i) + '"';
    std::string long_names = R"({"resources":[)";
    for (int i = 0; i < 32; ++i)
        long_names += (i ? ",\"r" : "\"r") + std::to_string(i) + std::string(130, 'x') + '"';
    const std::pair<std::string, std::string> faults[] = {
        {R"({"resources":[]})", "/resources"},
        {R"({"resources":"a"})", "/resources"},
        {many + "]}", "/resources"},
        {long_names + "]}", "/resources"},
        {R"({"resources":["a"],"resource":"a"})", "/resources"},
        {R"({"resources":["a","a//b"]})", "/resources/1"},
        {R"({"resources":["a","b","a"]})", "/resources/2"},
        {R"({"resources":["a",1]})", "/resources/1"},
    };
    for (const auto& [body, pointer] : faults) {
        const auto got = parse_lease(body);
        ASSERT_FALSE(got) << body;
        EXPECT_EQ(pointers(got.error()), names{pointer}) << body;
    }
}

TEST(api_lease_request, mode_and_shared_then_how_names_are_held) {
    auto got = parse_lease(R"({"resources":["b","a"],"mode":"shared"})");
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->acquire.resources.empty());
    EXPECT_EQ(got->acquire.shared.size(), 2U);
    got = parse_lease(R"({"resource":"a","mode":"exclusive","shared":["c","b"]})");
    ASSERT_TRUE(got);
    EXPECT_EQ(got->acquire.resources.front().str(), "a");
    EXPECT_EQ(got->acquire.shared.front().str(), "c");
    got = parse_lease(R"({"any_of":["a","b"],"mode":"exclusive"})");
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->any_of && got->acquire.shared.empty());
}

TEST(api_lease_request, shared_faulty_then_refused_with_pointer) {
    std::string many = R"({"resource":"a","shared":[)", long_names = R"({"shared":[)";
    for (int i = 0; i < 64; ++i)
        many += (i ? ",\"r" : "\"r") + std::to_string(i) + '"';
    for (int i = 0; i < 31; ++i)
        long_names += (i ? ",\"r" : "\"r") + std::to_string(i) + std::string(129, 'x') + '"';
    const std::string long_resource = std::string(200, 'y');
    const std::pair<std::string, std::string> faults[] = {
        {R"({"resource":"a","mode":"both"})", "/mode"},
        {R"({"resource":"a","mode":1})", "/mode"},
        {R"({"resource":"a","mode":null})", "/mode"},
        {R"({"resource":"a","mode":"shared","shared":["b"]})", "/shared"},
        {R"({"resource":"a","shared":[]})", "/shared"},
        {R"({"resource":"a","shared":"b"})", "/shared"},
        {R"({"resource":"a","shared":null})", "/shared"},
        {R"({"resource":"a","shared":["b",1]})", "/shared/1"},
        {R"({"resource":"a","shared":["b//c"]})", "/shared/0"},
        {R"({"resource":"a","shared":["b","b"]})", "/shared/1"},
        {R"({"resources":["c","a"],"shared":["b","a"]})", "/shared/1"},
        {R"({"any_of":["a","b"],"shared":["c"]})", "/any_of"},
        {R"({"any_of":["a","b"],"mode":"shared"})", "/any_of"},
        {R"({"shared":["a"]})", "/resource"},
        {many + "]}", "/shared"},
        {long_names + R"(],"resource":")" + long_resource + "\"}", "/shared"},
    };
    for (const auto& [body, pointer] : faults) {
        const auto got = parse_lease(body);
        ASSERT_FALSE(got) << body;
        EXPECT_EQ(pointers(got.error()), names{pointer}) << body;
    }
}

TEST(api_lease_request, many_faults_then_all_reported) {
    const auto got = parse_lease(
        R"({"resource":"a//b","ttl_ms":99,"wait_ms":30001,"owner":"x\ny","fence_on_grant":"yes","color":"red"})");
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, errc::invalid_request);
    EXPECT_EQ(pointers(got.error()),
              (names{"/resource", "/ttl_ms", "/wait_ms", "/owner", "/fence_on_grant", "/color"}));
}

TEST(api_lease_request, nothing_given_then_resource_missing) {
    EXPECT_EQ(pointers(parse_lease("{}").error()), names{"/resource"});
}

TEST(api_lease_request, wrong_value_of_a_field_then_pointed_at) {
    const std::string long_owner = '"' + std::string(129, 'x') + '"';
    const std::pair<const char*, std::vector<std::string>> faults[] = {
        {"resource", {R"("")", R"("/")", R"("a//b")", R"("a\u0000b")", "5", "null", "true", R"(["a"])", R"({"a":1})"}},
        {"ttl_ms",
         {"0", "-10000", "99", "60001", "2147483648", "9223372036854775808", "18446744073709551616", "1e3", "1.5",
          R"("1000")", "null", "true", "[]", "{}"}},
        {"wait_ms", {"-1", "30001", "9223372036854775808", "0.5", R"("10")", "null", "false", "[]"}},
        {"owner", {long_owner, R"("a\nb")", R"("a\u0000")", R"("\u001b[31m")", "5", "null", "true", "[]", "{}"}},
        {"fence_on_grant", {"1", R"("yes")", "null"}},
        {"max_hold_ms", {"1000", "0", "null"}},
    };
    for (const auto& [field, values] : faults) {
        const std::string name(field);
        for (const std::string& value : values) {
            const std::string body = (name == "resource" ? "{\"" : R"({"resource":"a",")") + name + "\":" + value + "}";
            const auto got = parse_lease(body);
            ASSERT_FALSE(got) << body;
            EXPECT_EQ(pointers(got.error()), names{"/" + name}) << body;
        }
    }
}

TEST(api_lease_request, idempotency_key_then_passed_on_or_refused_by_name) {
    auto r = with_body(R"({"resource":"a"})");
    r.headers.emplace_back("idempotency-key", "job-1");
    EXPECT_EQ(parse_lease_request(r, {})->acquire.idempotency_key, "job-1");
    for (const std::string& bad : {std::string(), std::string(65, 'x'), std::string("a b"), std::string("\xc3\xa9")}) {
        r.headers.back().second = bad;
        EXPECT_EQ(pointers(parse_lease_request(r, {}).error()), names{"Idempotency-Key"}) << bad;
    }
}

TEST(api_lease_request, event_stream_requested_then_kept) {
    auto r = with_body(R"({"resource":"a"})");
    EXPECT_FALSE(parse_lease_request(r, {})->acquire.kept);
    r.media_type = 1;
    EXPECT_TRUE(parse_lease_request(r, {})->acquire.kept);
}

TEST(api_lease_request, renewal_with_and_without_body_then_ttl) {
    EXPECT_EQ(*parse_renewal(with_body(R"({"ttl_ms":700})"), {}), std::chrono::milliseconds(700));
    EXPECT_EQ(*parse_renewal(with_body("{}"), {}), lockcore::config{}.default_ttl);
    EXPECT_EQ(*parse_renewal(http::request{}, {}), lockcore::config{}.default_ttl);
    EXPECT_EQ(pointers(parse_renewal(with_body(R"({"ttl_ms":60001,"x":1})"), {}).error()), (names{"/ttl_ms", "/x"}));
}

TEST(api_write_body, example_of_the_contract_then_operations) {
    const auto got = parse_write((R"({"lease_id":"L","operations":[
        {"update":"inventory","where":{"sku":"sku-1","stock":{"gte":3,"lt":9}},
         "add":{"stock":-3},"set":{"note":"sold"},"expect_rows":1},
        {"insert":"orders","values":{"id":1001,"meta":{"a":[1]}}},
        {"delete":"orders","where":{"id":{"in":[1,2]},"note":{"is":null}}},
        {"call":"place_order","args":{"order_id":1001}}],"return":"rows","require_live":true})"));
    ASSERT_TRUE(got);
    EXPECT_EQ(got->lease_id, "L");
    EXPECT_TRUE(got->return_rows);
    EXPECT_TRUE(got->require_live);
    ASSERT_EQ(got->operations.size(), 4U);
    const auto& update = std::get<update_operation>(got->operations[0]);
    EXPECT_EQ(update.table, "inventory");
    ASSERT_EQ(update.where.size(), 3U);
    EXPECT_EQ(update.where[0].op, comparison_operator::eq);
    EXPECT_EQ(update.where[1].op, comparison_operator::gte);
    EXPECT_EQ(update.where[2].pointer, "/operations/0/where/stock/lt");
    EXPECT_EQ(update.add.at(0).value, boost::json::value(-3));
    EXPECT_EQ(update.set.at(0).pointer, "/operations/0/set/note");
    EXPECT_EQ(update.expect_rows, 1);
    EXPECT_EQ(std::get<insert_operation>(got->operations[1]).values.size(), 2U);
    EXPECT_EQ(std::get<delete_operation>(got->operations[2]).where[1].op, comparison_operator::is);
    EXPECT_EQ(std::get<call_operation>(got->operations[3]).function, "place_order");
}

TEST(api_write_body, defaults_then_minimal_and_not_live) {
    const auto got = parse_write((R"({"lease_id":"L","operations":[{"call":"f"}]})"));
    ASSERT_TRUE(got);
    EXPECT_FALSE(got->return_rows);
    EXPECT_FALSE(got->require_live);
}

TEST(api_write_body, lease_in_header_then_used_and_two_different_then_refused) {
    auto r = with_body(R"({"operations":[{"call":"f"}]})");
    EXPECT_EQ(parse_write(r)->lease_id, "");
    r.headers.emplace_back("fencing-lease", "H");
    EXPECT_EQ(parse_write(r)->lease_id, "H");
    r.body = R"({"lease_id":"H","operations":[{"call":"f"}]})";
    EXPECT_EQ(parse_write(r)->lease_id, "H");
    r.body = R"({"lease_id":"B","operations":[{"call":"f"}]})";
    EXPECT_EQ(pointers(parse_write(r).error()), names{"/lease_id"});
}

/// Returns the pointers of an operation's faults, relative to the operation.
names faults_of(const std::string& operation) {
    const auto got = parse_write((R"({"lease_id":"L","operations":[)" + operation + "]}"));
    if (got) return {};
    names out;
    for (const auto& e : got.error().errors)
        out.insert(e.pointer.substr(std::string("/operations/0").size()));
    return out;
}

TEST(api_write_body, update_or_delete_without_where_then_refused) {
    EXPECT_EQ(faults_of(R"({"update":"t","set":{"a":1}})"), names{"/where"});
    EXPECT_EQ(faults_of(R"({"update":"t","set":{"a":1},"where":{}})"), names{"/where"});
    EXPECT_EQ(faults_of(R"({"delete":"t"})"), names{"/where"});
    EXPECT_EQ(faults_of(R"({"delete":"t","where":{}})"), names{"/where"});
    EXPECT_EQ(faults_of(R"({"delete":"t","where":[]})"), names{"/where"});
    EXPECT_EQ(faults_of(R"({"delete":"t","where":"a = 1"})"), names{"/where"});
}

TEST(api_write_body, faulty_conditions_then_each_pointed_at) {
    EXPECT_EQ(
        faults_of(R"({"delete":"t","where":{"a":null,"b":[1],"c":{},"d":{"like":1},"e":{"in":[]},"f":{"in":[null]},)"
                  R"("g":{"is":1},"h":{"gt":null},"i":1,"j":{"in":5},"k":{"gte":1,"; drop":2}}})"),
        (names{"/where/a", "/where/b", "/where/c", "/where/d/like", "/where/e/in", "/where/f/in", "/where/g/is",
               "/where/h/gt", "/where/j/in", "/where/k/; drop"}));
    EXPECT_EQ(
        faults_of(R"({"delete":"t","where":{"a":{"is":"unknown"},"b":{"is":true},"c":{"neq":"x"},"d":{"lte":1.5}}})"),
        names{});
}

TEST(api_write_body, faulty_updates_then_each_pointed_at) {
    EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1}})"), names{"/set"});
    EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1},"set":{}})"), names{"/set"});
    EXPECT_EQ(faults_of(R"({"update":5,"where":{"a":1},"add":"1","set":[1],"expect_rows":"1"})"),
              (names{"/update", "/add", "/set", "/expect_rows"}));
    EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1},"add":{"x":1},"set":{"x":2}})"), names{"/add/x"});
    EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1},"add":{"x":true,"y":"1.5"}})"), names{"/add/x"});
    EXPECT_EQ(faults_of(R"({"update":"","where":{"a":1},"set":{"a":1},"expect_rows":-1,"values":{}})"),
              (names{"/update", "/expect_rows", "/values"}));
}

TEST(api_write_body, operation_of_no_or_two_kinds_then_refused) {
    EXPECT_EQ(faults_of("{}"), names{""});
    EXPECT_EQ(faults_of(R"({"insert":"t","delete":"t","values":{}})"), names{""});
    for (const char* other : {"1", "null", R"({"truncate":"t"})", R"({"select":"t"})"})
        EXPECT_EQ(faults_of(other), names{""}) << other;
    EXPECT_EQ(faults_of(R"({"insert":"t"})"), names{"/values"});
    EXPECT_EQ(faults_of(R"({"insert":"t","values":5})"), names{"/values"});
    EXPECT_EQ(faults_of(R"({"call":["f"]})"), names{"/call"});
    EXPECT_EQ(faults_of(R"({"insert":"t","values":{}})"), names{});
    EXPECT_EQ(faults_of(R"({"call":"f","args":[1],"expect_rows":1})"), (names{"/args", "/expect_rows"}));
}

TEST(api_write_body, faulty_name_then_pointed_at_with_escapes) {
    const std::string long_name(200, 'x');
    for (const auto& [name, escaped] :
         {std::pair<std::string, std::string>("", ""), {"a/b~\\u0000", "a~1b~0" + std::string(1, '\0')}}) {
        const std::string given = "{\"" + name + "\":1}";
        EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1},"set":)" + given + "}"), names{"/set/" + escaped});
        EXPECT_EQ(faults_of(R"({"update":"t","where":{"a":1},"add":)" + given + "}"), names{"/add/" + escaped});
        EXPECT_EQ(faults_of(R"({"delete":"t","where":)" + given + "}"), names{"/where/" + escaped});
        EXPECT_EQ(faults_of(R"({"insert":"t","values":)" + given + "}"), names{"/values/" + escaped});
        EXPECT_EQ(faults_of(R"({"call":"f","args":)" + given + "}"), names{"/args/" + escaped});
    }
    for (const char* verb : {"insert", "call"}) {
        for (const std::string& name : {std::string(), std::string("\\u0000"), long_name})
            EXPECT_TRUE(faults_of("{\"" + std::string(verb) + "\":\"" + name + "\",\"values\":{}}")
                            .contains("/" + std::string(verb)));
    }
}

TEST(api_write_body, wrong_value_of_a_member_then_pointed_at) {
    const std::pair<const char*, std::vector<std::string>> faults[] = {
        {"lease_id", {"5", "null", "{}", R"(["a"])"}},
        {"return", {R"("everything")", "5", "true", "null"}},
        {"require_live", {"1", R"("true")", "null"}},
        {"then", {"true", "null"}},
    };
    for (const auto& [member, values] : faults) {
        for (const std::string& value : values) {
            const auto got =
                parse_write(R"({"operations":[{"call":"f"}],")" + std::string(member) + "\":" + value + "}");
            ASSERT_FALSE(got) << member << value;
            EXPECT_EQ(pointers(got.error()), names{"/" + std::string(member)}) << value;
        }
    }
    EXPECT_NE(parse_write(R"({"lease_id":null,"operations":[{"call":"f"}]})").error().errors.at(0).detail.find("leave"),
              std::string::npos);
}

TEST(api_write_body, unknown_field_then_refused_by_name) {
    EXPECT_EQ(pointers(parse_write(R"({"lease_id":"L","operations":[{"call":"f"}],"other":1})").error()),
              names{"/other"});
}

TEST(api_write_body, then_release_and_key_then_read) {
    auto r = with_body(R"({"lease_id":"L","operations":[{"call":"f"}],"then":"release"})");
    r.headers.emplace_back("idempotency-key", "k-1");
    const auto got = parse_write(r);
    ASSERT_TRUE(got);
    EXPECT_TRUE(got->then_release);
    EXPECT_EQ(got->idempotency_key, "k-1");
    EXPECT_FALSE(got->own_lease);
    EXPECT_EQ(pointers(parse_write(R"({"lease_id":"L","operations":[{"call":"f"}],"then":"keep"})").error()),
              names{"/then"});
    for (const std::string& key : {std::string(), std::string(65, 'k'), std::string("a b"), std::string("\xc3\xa4")}) {
        r.headers.back().second = key;
        EXPECT_EQ(pointers(parse_write(r).error()), names{"Idempotency-Key"}) << key;
    }
}

TEST(api_write_body, own_lease_then_fields_of_a_lease_request) {
    const auto got = parse_write(
        R"({"lease":{"resources":["b","a"],"ttl_ms":5000,"wait_ms":200,"owner":"o"},"operations":[{"call":"f"}]})");
    ASSERT_TRUE(got);
    ASSERT_TRUE(got->own_lease);
    EXPECT_EQ(got->lease_id, "");
    EXPECT_EQ(got->own_lease->resources.size(), 2U);
    EXPECT_EQ(got->own_lease->ttl, std::chrono::milliseconds(5000));
    EXPECT_EQ(got->own_lease->wait, std::chrono::milliseconds(200));
    EXPECT_EQ(got->own_lease->holder, (lockcore::holder{"orders", "o"}));
    EXPECT_EQ(got->own_lease->origin, "4bf92f3577b34da6a3ce929d0e0e4736");
}

TEST(api_write_body, faulty_own_lease_then_each_field_pointed_at) {
    const auto faults = [](const std::string& lease) {
        return pointers(parse_write(R"({"lease":)" + lease + R"(,"operations":[{"call":"f"}]})").error());
    };
    EXPECT_EQ(faults(R"({"ttl_ms":1,"wait_ms":-1,"owner":"\n","fence_on_grant":true})"),
              (names{"/lease/resource", "/lease/ttl_ms", "/lease/wait_ms", "/lease/owner", "/lease/fence_on_grant"}));
    EXPECT_EQ(faults(R"({"resource":"a","resources":["b"]})"), names{"/lease/resources"});
    EXPECT_EQ(faults(R"({"resources":["a","b//c"]})"), names{"/lease/resources/1"});
    EXPECT_EQ(faults("1"), names{"/lease"});
    EXPECT_EQ(faults(R"({"resource":"a"},"lease_id":"L")"), names{"/lease"});
    for (const char* header : {"fencing-lease", "fencing-resource", "fencing-token"}) {
        auto r = with_body(R"({"lease":{"resource":"a"},"operations":[{"call":"f"}]})");
        r.headers.emplace_back(header, "1");
        EXPECT_EQ(pointers(parse_write(r).error()), names{"/lease"}) << header;
    }
}

TEST(api_write_body, operations_missing_empty_or_too_many_then_refused) {
    std::string many = R"({"lease_id":"L","operations":[{"call":"f"})";
    for (std::size_t i = 0; i < operations_max; ++i)
        many += R"(,{"call":"f"})";
    EXPECT_EQ(pointers(parse_write("{}").error()), names{"/operations"});
    EXPECT_EQ(pointers(parse_write(many + "]}").error()), names{"/operations"});
    for (const char* operations : {"[]", "{}", "null", R"("x")", "5"})
        EXPECT_EQ(pointers(parse_write(R"({"operations":)" + std::string(operations) + "}").error()),
                  names{"/operations"});
}

/// Returns the members `"PREFIX0":VALUE,"PREFIX1":VALUE,…`.
std::string members(std::size_t count, const std::string& prefix, const std::string& value) {
    std::string out;
    for (std::size_t i = 0; i < count; ++i)
        out.append(i == 0 ? "" : ",").append("\"" + prefix + std::to_string(i) + "\":" + value);
    return out;
}

TEST(api_write_body, hostile_names_then_short_and_quick_answer) {
    const std::string long_name(500'000, 'n');
    const std::string update = R"({"lease_id":"L","operations":[{"update":"t","where":{"id":1},)";
    const std::array<std::string, 4> bodies{
        R"({"lease_id":"L","operations":[{"delete":"t","where":{")" + long_name + "\":{" + members(40'000, "o", "1") +
            "}}}]}",
        "{\"" + long_name + "\":{" + members(25'000, "o", R"("\u0000")") + "}}",
        update + R"("add":{)" + members(40'000, "c", "1") + R"(},"set":{)" + members(40'000, "c", "1") + "}}]}",
        update + R"("add":{)" + members(1'500, "c", "1") + R"(},"set":{)" + members(1'500, "c", "1") + "}}]}"};
    for (const std::string& body : bodies) {
        const auto begun = std::chrono::steady_clock::now();
        const auto got = parse_write(body);
        EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
        ASSERT_FALSE(got);
        std::size_t bytes = 0;
        for (const field_error& error : got.error().errors)
            bytes += error.pointer.size() + error.detail.size();
        EXPECT_GT(bytes, 0U);
        EXPECT_LT(bytes, 200'000U);
    }
}

}  // namespace
}  // namespace fencegate::api
