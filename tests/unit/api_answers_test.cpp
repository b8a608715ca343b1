#include <gateway/api/history/history_render.hpp>
#include <gateway/api/leases/lease_access.hpp>
#include <gateway/api/leases/lease_responses.hpp>
#include <gateway/api/routes.hpp>
#include <gateway/api/service/state.hpp>
#include <gateway/api/writes/write_body.hpp>
#include <gateway/audit/event_sink.hpp>
#include <gateway/http/codec/json_io.hpp>
#include <gateway/http/codec/problem.hpp>
#include <gateway/pg/database.hpp>

#include <lockcore/lock_manager.hpp>

#include <gtest/gtest.h>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <set>

namespace fencegate::api {
namespace {

lockcore::failure lock_failure(lockcore::errc code) {
    lockcore::failure f{code, "why", {}, 0, {}};
    return f;
}

TEST(api_lock_failures, every_code_then_meaning_of_the_contract) {
    const std::pair<lockcore::errc, errc> table[] = {
        {lockcore::errc::invalid_argument, errc::invalid_request},
        {lockcore::errc::resource_locked, errc::resource_locked},
        {lockcore::errc::no_quorum, errc::no_quorum},
        {lockcore::errc::lease_lost, errc::lease_lost},
        {lockcore::errc::renewals_exhausted, errc::renewals_exhausted},
        {lockcore::errc::lease_not_authentic, errc::lease_not_authentic},
        {lockcore::errc::too_many_waiters, errc::too_many_waiters},
        {lockcore::errc::cancelled, errc::shutting_down},
        {lockcore::errc::shutting_down, errc::shutting_down},
    };
    for (const auto& [lock_code, code] : table) {
        const failure f = to_failure(lock_failure(lock_code));
        EXPECT_EQ(f.code, code) << lockcore::to_string(lock_code);
        EXPECT_EQ(f.detail, "why");
    }
}

TEST(api_lock_failures, resource_locked_then_remaining_and_position) {
    auto f = lock_failure(lockcore::errc::resource_locked);
    f.remaining = std::chrono::milliseconds(1'500);
    f.queue_position = 3;
    const failure out = to_failure(f);
    EXPECT_EQ(boost::json::serialize(out.facts), R"({"remaining_ms":1500,"queue_position":3})");
    EXPECT_EQ(out.retry_after, std::chrono::milliseconds(1'500));
}

TEST(api_lock_failures, no_quorum_then_what_each_node_answered) {
    auto f = lock_failure(lockcore::errc::no_quorum);
    f.answers = {{"a", "granted"}, {"b", "timeout"}};
    EXPECT_EQ(boost::json::serialize(to_failure(f).facts),
              R"({"nodes":[{"name":"a","answer":"granted"},{"name":"b","answer":"timeout"}]})");
}

TEST(api_lock_failures, no_quorum_says_why_a_node_does_not_vote) {
    auto f = lock_failure(lockcore::errc::no_quorum);
    f.answers = {{"a", "not admitted", "may have forgotten leases", std::chrono::milliseconds(900)},
                 {"b", "unreachable", "connection refused"}};
    EXPECT_EQ(boost::json::serialize(to_failure(f).facts),
              R"({"nodes":[{"name":"a","answer":"not admitted","detail":"may have forgotten leases",)"
              R"("quarantine_left_ms":900},{"name":"b","answer":"unreachable","detail":"connection refused"}]})");
}

lockcore::lease example_lease() {
    lockcore::lease l;
    l.id = "abc";
    l.claims.resources.push_back(*lockcore::resource_name::parse("inventory/sku-1"));
    l.claims.token = lockcore::fencing_token{34};
    l.claims.holder.owner = "orders-7f3a";
    l.ttl = std::chrono::milliseconds(10'000);
    l.validity = std::chrono::milliseconds(9'894);
    l.expires_at = lockcore::wall_time(std::chrono::milliseconds(1'795'255'209'894));
    l.renewals_left = 1000;
    l.nodes_granted = 5;
    l.nodes = 5;
    return l;
}

TEST(api_lease_render, lease_then_body_of_the_contract) {
    EXPECT_EQ(
        render_lease(example_lease(), {std::chrono::milliseconds(9'894), std::chrono::milliseconds(3)}),
        R"({"lease_id":"abc","resource":"inventory/sku-1","fencing_token":34,"owner":"orders-7f3a","hold_count":1,)"
        R"("ttl_ms":10000,"validity_ms":9894,"served_ms":3,"expires_at":"2026-11-21T10:00:09.894Z",)"
        R"("renewals_left":1000,)"
        R"("quorum":{"granted":5,"nodes":5}})");
}

TEST(api_lease_render, remaining_holds_then_count) {
    EXPECT_EQ(render_remaining_holds(example_lease().claims, "abc", 2, seal_result::not_requested),
              R"({"lease_id":"abc","resource":"inventory/sku-1","fencing_token":34,"hold_count":2})");
    EXPECT_EQ(render_remaining_holds(example_lease().claims, "abc", 2, seal_result::not_sealed),
              R"({"lease_id":"abc","resource":"inventory/sku-1","fencing_token":34,"hold_count":2,"sealed":false})");
}

TEST(api_lease_render, location_then_encoded_where_needed) {
    EXPECT_EQ(location_of("aZ09-_.~"), "/v1/leases/aZ09-_.~");
    EXPECT_EQ(location_of("a/b+="), "/v1/leases/a%2Fb%2B%3D");
}

std::shared_ptr<const http::rights> with_scopes(std::set<scope> scopes) {
    return std::make_shared<const http::rights>(rights_config{std::move(scopes), {}, {}, {}});
}

TEST(api_lease_access, lease_of_another_principal_then_forbidden_without_operate) {
    http::request r;
    r.principal = "orders";
    r.rights = with_scopes({scope::leases});
    lockcore::lease_claims claims;
    claims.resources = {*lockcore::resource_name::parse("a")};
    claims.holder.principal = "orders";
    EXPECT_TRUE(check_lease_use(claims, scope::leases, r));
    EXPECT_EQ(check_lease_use(claims, scope::writes, r).error().code, errc::forbidden);
    claims.holder.principal = "billing";
    EXPECT_EQ(check_lease_use(claims, scope::leases, r).error().code, errc::forbidden);
    r.rights = with_scopes({scope::operate});
    EXPECT_EQ(check_lease_use(claims, scope::leases, r).error().code, errc::forbidden);
    r.rights = with_scopes({scope::leases, scope::operate});
    EXPECT_TRUE(check_lease_use(claims, scope::leases, r));
}

TEST(api_lease_access, one_resource_outside_the_rights_then_forbidden) {
    http::request r;
    r.principal = "orders";
    r.rights = std::make_shared<const http::rights>(rights_config{{}, {{"orders/", {scope::leases}}}, {}, {}});
    lockcore::lease_claims claims;
    claims.holder.principal = "orders";
    claims.resources = {*lockcore::resource_name::parse("orders/1"), *lockcore::resource_name::parse("orders/2")};
    EXPECT_TRUE(check_lease_use(claims, scope::leases, r));
    claims.resources.push_back(*lockcore::resource_name::parse("billing/1"));
    const auto refused = check_lease_use(claims, scope::leases, r);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail, "The caller lacks the scope 'leases' for the resource billing/1.");
}

TEST(api_writes_render, outcome_then_rows_and_values_spliced_in) {
    write_report report;
    write_outcome& outcome = report.outcome;
    outcome.write_id = "W";
    outcome.token = lockcore::fencing_token{34};
    outcome.fences.push_back({"inventory/sku-1", 34});
    outcome.results.push_back({1, R"([{"sku": "sku-1"}])", false});
    outcome.results.push_back({2, "", false});
    outcome.results.push_back({0, "1001", true});
    EXPECT_EQ(render_write(report),
              R"({"applied":true,"write_id":"W",)"
              R"("fences":[{"resource":"inventory/sku-1","fencing_token":34,"last_fencing_token":34}],)"
              R"("results":[{"rows_affected":1,"rows":[{"sku": "sku-1"}]},{"rows_affected":2},{"value":1001}]})");
}

TEST(api_writes_render, own_lease_and_release_then_in_the_body) {
    write_report report;
    report.outcome.write_id = "W";
    report.outcome.token = lockcore::fencing_token{34};
    report.outcome.rows_left_out = true;
    report.own_lease = report.outcome.sealed = true;
    report.release.emplace().released = true;
    EXPECT_EQ(render_write(report), R"({"applied":true,"write_id":"W","fencing_token":34,"fences":[],"results":[],)"
                                    R"("rows_left_out":true,"released":true})");
    report.own_lease = report.outcome.rows_left_out = report.release->released = report.outcome.sealed = false;
    report.release->holds_left = 2;
    EXPECT_EQ(
        render_write(report),
        R"({"applied":true,"write_id":"W","fences":[],"results":[],"released":false,"sealed":false,"hold_count":2})");
}

TEST(api_history_render, page_then_items_and_cursor) {
    history_page page;
    page.more = true;
    history_item item;
    item.id = 7;
    item.event = "lease_granted";
    item.resource = "a";
    item.fencing_token = 34;
    item.detail = R"({"x": 1})";
    page.items.push_back(item);
    EXPECT_EQ(render_history(page, false, 0),
              R"({"items":[{"id":7,"at":"1970-01-01T00:00:00.000Z","event":"lease_granted","resource":"a",)"
              R"("fencing_token":34,)"
              R"("last_fencing_token":null,"owner":null,"principal":null,"write_id":null,"trace_id":null,)"
              R"("detail":{"x": 1}}],)"
              R"("next_cursor":"ZGVzYzowOjc"})");
    EXPECT_EQ(render_history(history_page{}, false, 0), R"({"items":[],"next_cursor":null})");
}

std::string csv_of_owner(const std::string& owner) {
    history_item item;
    item.initiator.owner = owner;
    std::string text;
    append_history_csv(text, item);
    const std::string before = "0,1970-01-01T00:00:00.000Z,,,,,", after = ",,,,\r\n";
    EXPECT_TRUE(text.starts_with(before) && text.ends_with(after)) << text;
    return text.substr(before.size(), text.size() - before.size() - after.size());
}

TEST(api_history_render, csv_value_is_quoted_at_any_separator) {
    EXPECT_EQ(csv_of_owner("a b:c/d"), "a b:c/d");
    for (const std::string separator : {",", ";", "|", "\t", "\n", "\""})
        EXPECT_EQ(csv_of_owner("x" + separator + "1"), "\"x" + separator + (separator == "\"" ? "\"1\"" : "1\""));
}

TEST(api_history_render, csv_formula_then_apostrophe_also_after_separator) {
    EXPECT_EQ(csv_of_owner("=1+1"), "'=1+1");
    EXPECT_EQ(csv_of_owner("'x"), "''x");
    EXPECT_EQ(csv_of_owner("x;=1+1;"), "\"x;'=1+1;\"");
    EXPECT_EQ(csv_of_owner("x\r\n=1"), "\"x\r\n'=1\"");
    EXPECT_EQ(csv_of_owner("x\t@a|-1;+1;\uFF1D1;'y"), "\"x\t'@a|'-1;'+1;'\uFF1D1;''y\"");
    EXPECT_EQ(csv_of_owner("x;\"=1;"), "\"x;'\"\"=1;\"") << "a quote at the beginning of a cell would be removed";
    EXPECT_EQ(csv_of_owner("x =1,=1"), "\"x =1,=1\"") << "at commas the quotes are at the beginning of the cell";
}

TEST(api_nodes_render, every_state_then_name_of_the_contract) {
    using enum lockcore::node_state;
    EXPECT_STREQ(node_state_name(voting), "voting");
    EXPECT_STREQ(node_state_name(quarantined), "quarantined");
    EXPECT_STREQ(node_state_name(misconfigured), "misconfigured");
    EXPECT_STREQ(node_state_name(unreachable), "unreachable");
    EXPECT_STREQ(node_state_name(identifying), "unreachable");
}

TEST(api_nodes_render, node_then_all_members) {
    lockcore::node_status n;
    n.name = "a";
    n.address = "127.0.0.1:7001";
    n.state = lockcore::node_state::quarantined;
    n.detail = "in quarantine";
    n.run_id = "r";
    n.admitted_epoch = lockcore::epoch{3};
    n.latency = std::chrono::microseconds(1'700);
    n.quarantine_left = std::chrono::milliseconds(900);
    EXPECT_EQ(
        render_nodes({n}, std::nullopt, std::nullopt, {"key-a", "key-b"}, 2),
        R"({"nodes":[{"name":"a","address":"127.0.0.1:7001","state":"quarantined","detail":"in quarantine","epoch":3,)"
        R"("run_id":"r","latency_ms":2,"latency_us":1700,"quarantine_left_ms":900,"keys_without_ttl":null}],)"
        R"("leaks":null,"guard":null,)"
        R"("signing_keys":{"signing":"key-a","verification":["key-b"]},"cell":2})");
}

TEST(api_nodes_render, guard_faults_then_counted_and_the_first_fifty_named) {
    metrics::guard_watch::finding found;
    found.report.faults.assign(51, "open");
    const std::string text = render_nodes({}, std::nullopt, found, {"key-a"}, 0);
    const std::string begin =
        R"({"nodes":[],"leaks":null,"guard":{"at":"1970-01-01T00:00:00.000Z","fault_count":51,"faults":["open",)";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    std::size_t named = 0;
    for (auto at = text.find("\"open\""); at != std::string::npos; at = text.find("\"open\"", at + 1))
        ++named;
    EXPECT_EQ(named, 50u);
}

TEST(api_guard_render, state_has_the_first_fifty_faults_and_their_number) {
    metrics::guard_watch::finding found;
    found.report.state = {{"tables", boost::json::array{}},
                          {"faults", boost::json::array(51, "open")},
                          {"limits", boost::json::array{"no event triggers"}},
                          {"storage_generation", {{"timeline", 7}, {"floor", 0}}},
                          {"compared_at", nullptr}};
    const auto text = render_guard_state(found);
    EXPECT_TRUE(
        text.starts_with(R"({"at":"1970-01-01T00:00:00.000Z","tables":[],"fault_count":51,"faults":["open","open",)"))
        << text;
    const std::string end =
        R"("limits":["no event triggers"],"storage_generation":{"timeline":7,"floor":0},"compared_at":null})";
    EXPECT_TRUE(text.ends_with(end)) << text;
    EXPECT_EQ(boost::json::parse(text).at("faults").as_array().size(), 50u);
}

TEST(api_nodes_render, leaks_then_counted_a_node_and_named_once) {
    lockcore::node_status n;
    n.name = "a";
    metrics::leak_watch::finding found;
    found.report.nodes = {{"a", true, 5, 2, {"x/1", "x/2"}}, {"b", true, 5, 1, {"x/1"}}};
    found.report.held_by_minority = 1;
    found.report.minority_examples = {"y/1"};
    const std::string text = render_nodes({n}, found, std::nullopt, {"key-a"}, 0);
    EXPECT_NE(text.find(R"("keys_without_ttl":2}],"leaks":{"at":"1970-01-01T00:00:00.000Z","held_by_minority":1,)"
                        R"("without_ttl_examples":["x/1","x/2"],"minority_examples":["y/1"]},"guard":null,)"
                        R"("signing_keys":{"signing":"key-a","verification":[]},"cell":0})"),
              std::string::npos)
        << text;
}

/// Returns the routes. Their handlers are not called, so the referenced services are not used.
std::vector<http::route> routes_without_services() {
    static const config settings;
    alignas(std::max_align_t) static std::byte unused[8192];
    static const std::atomic<bool> stopping = false;
    static auto& locks = reinterpret_cast<lockcore::lock_manager&>(unused);
    static auto& database = reinterpret_cast<pg::database&>(unused);
    static auto& events = reinterpret_cast<audit::event_sink&>(unused);
    static auto& storage = reinterpret_cast<audit::storage_watch&>(unused);
    static auto& limiter = reinterpret_cast<limits::limiter&>(unused);
    static const lease_services leases{settings,
                                       locks,
                                       database,
                                       events,
                                       limiter,
                                       reinterpret_cast<limits::held_leases&>(unused),
                                       reinterpret_cast<const metrics::waiting_watch&>(unused)};
    static const write_services writes{settings,
                                       locks,
                                       database,
                                       storage,
                                       reinterpret_cast<running_keys&>(unused),
                                       reinterpret_cast<waiting_writes&>(unused),
                                       leases};
    static const history_services history{
        settings, locks, database, events, reinterpret_cast<audit::history_feed&>(unused), limiter};
    static const state_services state{settings,
                                      locks,
                                      database,
                                      events,
                                      storage,
                                      limiter,
                                      reinterpret_cast<metrics::registry&>(unused),
                                      reinterpret_cast<metrics::leak_watch&>(unused),
                                      reinterpret_cast<metrics::guard_watch&>(unused),
                                      reinterpret_cast<const lockcore::hmac_sha256&>(unused),
                                      stopping};
    static const gateway_services services{leases, writes, history, state};
    return routes(services);
}

TEST(api_openapi, document_then_describes_exactly_the_routes) {
    const auto document = http::parse_json(openapi_document());
    ASSERT_TRUE(document) << document.error().errors.at(0).pointer << document.error().errors.at(0).detail;
    std::set<std::string> described;
    for (const auto& path : document->at("paths").as_object()) {
        for (const auto& member : path.value().as_object()) {
            if (member.key() == "parameters") continue;
            described.insert(std::string(member.key()) + " " + std::string(path.key()));
        }
    }
    std::set<std::string> served;
    for (const auto& r : routes_without_services()) {
        std::string verb(http::to_string(r.verb));
        for (char& c : verb)
            c = static_cast<char>(c - 'A' + 'a');
        served.insert(verb + " " + r.path);
    }
    // The addresses of PostgREST, which the document names in a sentence, have the same operations.
    std::set<std::string> of_postgrest;
    std::erase_if(served, [&](const std::string& route) {
        const auto begin = route.find(" /rest/v1/");
        if (begin == std::string::npos || route.ends_with("/rest/v1/")) return false;
        const std::string rest = route.substr(begin + 10);
        of_postgrest.insert(route.substr(0, begin) + (rest.starts_with("rpc/") ? " /v1/" : " /v1/tables/") + rest);
        return true;
    });
    EXPECT_EQ(described, served);
    EXPECT_EQ(of_postgrest.size(), 6U);
    EXPECT_TRUE(std::ranges::includes(served, of_postgrest));
}

TEST(api_openapi, problem_types_then_exactly_the_table) {
    const auto document = http::parse_json(openapi_document());
    ASSERT_TRUE(document);
    std::set<std::string> described;
    for (const auto& type :
         document->at("components").at("schemas").at("problem").at("properties").at("type").at("enum").as_array()) {
        described.insert(std::string(type.as_string()));
    }
    std::set<std::string> known;
    for (const auto& kind : http::problem_kinds())
        known.insert("/problems/" + std::string(kind.slug));
    EXPECT_EQ(described, known);
}

TEST(api_openapi, references_then_all_resolve) {
    const auto document = http::parse_json(openapi_document());
    ASSERT_TRUE(document);
    const std::string text(openapi_document());
    constexpr std::string_view mark = "\"$ref\": \"#";
    std::size_t count = 0;
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1), ++count) {
        const std::size_t begin = at + mark.size();
        const std::string pointer = text.substr(begin, text.find('"', begin) - begin);
        boost::json::error_code ec;
        EXPECT_NE(document->find_pointer(pointer, ec), nullptr) << pointer;
    }
    EXPECT_GT(count, 50U);
}

TEST(api_routes, only_waiting_for_a_lease_then_long_waiting) {
    for (const auto& r : routes_without_services()) {
        EXPECT_EQ(r.long_waiting, r.verb == http::method::post && (r.path == "/v1/leases" || r.path == "/v1/writes"))
            << r.path;
    }
}

TEST(api_routes, everything_below_v1_then_asks_who_calls) {
    for (const auto& r : routes_without_services())
        EXPECT_EQ(r.required_scope || r.about_caller, r.path.starts_with("/v1/") || r.path.starts_with("/rest/v1/"))
            << r.path;
}

}  // namespace
}  // namespace fencegate::api
