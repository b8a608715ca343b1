#include <gateway/http/identity/identity.hpp>

#include <gtest/gtest.h>

#include <algorithm>

namespace fencegate::http {
namespace {

std::string detail_of(const result<void>& checked) {
    return checked ? "" : checked.error().detail;
}

/// Everything by default, less for orders/, nothing for orders/secret/, more again for one resource in it.
rights nested() {
    return rights({{scope::leases, scope::writes, scope::history},
                   {{"orders/", {scope::leases, scope::history}},
                    {"orders/secret/", {}},
                    {"orders/secret/1", {scope::leases, scope::writes, scope::history}}},
                   {},
                   {}});
}

TEST(http_rights, longest_prefix_replaces_the_scopes) {
    const rights r = nested();
    struct row {
        const char* resource;
        bool leases, writes;
    };
    for (const row& each : {row{"inventory/1", true, true}, row{"orders", true, true}, row{"orders/1", true, false},
                            row{"orders/secret", true, false}, row{"orders/secret/2", false, false},
                            row{"orders/secret/1", true, true}, row{"orders/secret/11", true, true}}) {
        EXPECT_EQ(r.require(scope::leases, each.resource).has_value(), each.leases) << each.resource;
        EXPECT_EQ(r.require(scope::writes, each.resource).has_value(), each.writes) << each.resource;
    }
}

TEST(http_rights, order_of_the_prefixes_does_not_count) {
    const rights_config given{{}, {{"a", {scope::leases}}, {"a/b", {}}, {"a/b/c", {scope::writes}}}, {}, {}};
    rights_config reversed = given;
    std::ranges::reverse(reversed.prefixes);
    for (const rights& r : {rights(given), rights(reversed)}) {
        EXPECT_TRUE(r.require(scope::leases, "a/x"));
        EXPECT_FALSE(r.require(scope::leases, "a/b/x"));
        EXPECT_FALSE(r.require(scope::leases, "a/b/c"));
        EXPECT_TRUE(r.require(scope::writes, "a/b/c"));
    }
}

TEST(http_rights, a_prefix_needs_the_scope_for_every_longer_one) {
    const rights r = nested();
    EXPECT_TRUE(r.require_for_prefix(scope::history, "inventory/"));
    EXPECT_TRUE(r.require_for_prefix(scope::history, "orders/1"));
    EXPECT_TRUE(r.require_for_prefix(scope::history, "orders/secret/1"));
    EXPECT_TRUE(r.require_for_prefix(scope::history, "orders/secret/12"));
    for (const char* prefix : {"", "o", "orders", "orders/", "orders/s", "orders/secret/", "orders/secret/2"}) {
        EXPECT_EQ(detail_of(r.require_for_prefix(scope::history, prefix)),
                  prefix == std::string("orders/secret/2")
                      ? "The caller lacks the scope 'history' for the resources whose names begin with orders/secret/2."
                      : "The caller lacks the scope 'history' for the resources whose names begin with orders/secret/.")
            << prefix;
    }
}

TEST(http_rights, what_names_no_resource_needs_it_everywhere) {
    EXPECT_TRUE(rights({{scope::operate}, {}, {}, {}}).require(scope::operate));
    EXPECT_TRUE(rights({{scope::operate}, {{"a/", {scope::operate}}}, {}, {}}).require(scope::operate));
    EXPECT_EQ(detail_of(rights({{scope::operate}, {{"a/", {scope::leases}}}, {}, {}}).require(scope::operate)),
              "The caller lacks the scope 'operate' for the resources whose names begin with a/.");
    EXPECT_EQ(detail_of(rights({{}, {{"a/", {scope::operate}}}, {}, {}}).require(scope::operate)),
              "The caller lacks the scope 'operate'.");
}

TEST(http_rights, some_resource_then_the_handler_decides) {
    const rights r({{scope::writes}, {{"a/", {scope::leases}}}, {}, {}});
    EXPECT_TRUE(r.require_for_some(scope::writes));
    EXPECT_TRUE(r.require_for_some(scope::leases));
    EXPECT_EQ(detail_of(r.require_for_some(scope::operate)), "The caller lacks the scope 'operate'.");
}

TEST(http_rights, several_resources_then_each_needs_the_scope) {
    const rights r = nested();
    const std::vector<lockcore::resource_name> covered{*lockcore::resource_name::parse("a"),
                                                       *lockcore::resource_name::parse("orders/1")};
    EXPECT_TRUE(r.require(scope::leases, covered));
    EXPECT_EQ(detail_of(r.require(scope::writes, covered)),
              "The caller lacks the scope 'writes' for the resource orders/1.");
}

TEST(http_rights, exposed_names_given_then_no_others) {
    EXPECT_TRUE(rights({{}, {}, {}, {}}).require_exposed("inventory"));
    const rights r({{}, {}, {{"inventory"}}, {}});
    EXPECT_TRUE(r.require_exposed("inventory"));
    const auto refused = r.require_exposed("orders");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::forbidden);
    EXPECT_EQ(refused.error().detail, "The caller may not use the table or function orders.");
    EXPECT_EQ(detail_of(r.require_exposed("x\xff")), "The caller may not use the table or function of this name.");
}

TEST(http_rights, none_and_all) {
    for (const scope s : {scope::leases, scope::writes, scope::history, scope::operate, scope::bare_tokens}) {
        EXPECT_TRUE(rights::all().require(s));
        EXPECT_TRUE(rights::all().require(s, "x"));
        EXPECT_FALSE(rights().require_for_some(s));
    }
    EXPECT_TRUE(rights::all().require_exposed("x"));
    EXPECT_FALSE(rights().require_exposed("x"));
}

}  // namespace
}  // namespace fencegate::http
