#include <gateway/http/routing/dispatcher.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

namespace fencegate::http {
namespace {

router make_router() {
    std::vector<route> routes;
    routes.push_back({method::post, "/v1/leases", scope::leases, {}, true});
    routes.push_back({method::get, "/v1/leases/{lease_id}", scope::leases, {}, false});
    routes.push_back({method::del, "/v1/leases/{lease_id}", scope::leases, {}, false});
    routes.push_back({method::post, "/v1/leases/{lease_id}/renew", scope::leases, {}, false});
    routes.push_back({method::get, "/v1/nodes", scope::operate, {}, false});
    return router(std::move(routes));
}

TEST(http_router, find_path_with_placeholder_then_decoded_parameter) {
    const router r = make_router();
    const auto found = r.find(method::post, "/v1/leases/a%2Fb%20c/renew");
    ASSERT_EQ(found.kind, router::outcome::found);
    EXPECT_EQ(found.target->path, "/v1/leases/{lease_id}/renew");
    EXPECT_EQ(found.parameters, std::vector<std::string>{"a/b c"});
}

TEST(http_router, find_encoded_literal_then_found) {
    EXPECT_EQ(make_router().find(method::get, "/v1/%6eodes").kind, router::outcome::found);
}

TEST(http_router, find_encoded_slash_between_literals_then_not_found) {
    EXPECT_EQ(make_router().find(method::get, "/v1%2Fnodes").kind, router::outcome::not_found);
}

TEST(http_router, find_unknown_paths_then_not_found) {
    const router r = make_router();
    for (const char* path :
         {"/", "", "v1/nodes", "/v1/nodes/", "/v1/leases/", "/v1//nodes", "/v1/leases/x/renew/y", "/V1/nodes", "*",
          "/a/b/c/d/e/f/g/h/i/j", "/v1", "/v1/lease", "/v1/leases/x/y", "/v2/leases", "/../etc/passwd"}) {
        EXPECT_EQ(r.find(method::get, path).kind, router::outcome::not_found) << path;
    }
}

TEST(http_router, find_other_method_then_allow_lists_methods) {
    const auto found = make_router().find(method::put, "/v1/leases/x");
    EXPECT_EQ(found.kind, router::outcome::method_not_allowed);
    EXPECT_EQ(found.allow, "GET, HEAD, DELETE, OPTIONS");
}

TEST(http_router, find_head_then_route_of_get) {
    const router r = make_router();  // a match points into it
    const auto found = r.find(method::head, "/v1/nodes");
    ASSERT_EQ(found.kind, router::outcome::found);
    EXPECT_EQ(found.target->verb, method::get);
}

TEST(http_router, find_head_where_only_post_then_not_allowed) {
    EXPECT_EQ(make_router().find(method::head, "/v1/leases").kind, router::outcome::method_not_allowed);
}

TEST(http_router, find_options_then_allow) {
    const auto found = make_router().find(method::options, "/v1/leases");
    EXPECT_EQ(found.kind, router::outcome::options);
    EXPECT_EQ(found.allow, "POST, OPTIONS");
}

TEST(http_router, find_broken_percent_encoding_then_malformed) {
    for (const char* path : {"/v1/leases/%", "/v1/leases/%2", "/v1/leases/%zz"}) {
        EXPECT_EQ(make_router().find(method::get, path).kind, router::outcome::malformed) << path;
    }
}

TEST(http_router, construct_with_repeated_route_then_logic_error) {
    std::vector<route> routes(2);
    for (route& r : routes)
        r.path = "/x";
    EXPECT_THROW(router{std::move(routes)}, std::logic_error);
}

}  // namespace
}  // namespace fencegate::http
