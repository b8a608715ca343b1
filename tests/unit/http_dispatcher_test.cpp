#include <gateway/http/routing/dispatcher.hpp>

#include <gtest/gtest.h>

namespace fencegate::http {
namespace {

/// SHA-256 of "secret".
constexpr const char* hash_of_api_key = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

auth_config credentials() {
    auth_config out;
    out.api_keys.push_back({"orders", hash_of_api_key, {{}, {{"orders/", {scope::leases}}}, {}, {}}});
    out.client_certificates.push_back(
        {"operator", certificate_config::field::subject, "CN=operator", {{scope::operate}, {}, {}, {}}});
    return out;
}

std::shared_ptr<const router> some_routes() {
    route caller{method::get, "/caller", {}, {}};
    caller.about_caller = true;
    return std::make_shared<const router>(std::vector<route>{{method::get, "/all", scope::operate, {}},
                                                             {method::get, "/named", scope::leases, {}, false, true},
                                                             {method::get, "/leases", scope::leases, {}},
                                                             caller});
}

class http_dispatcher_rights : public ::testing::Test {
  protected:
    dispatcher::decision prepare(const std::string& path, const dispatcher::sender& source) {
        request_ = {};
        request_.verb = method::get;
        request_.path = path;
        return dispatcher_.prepare(request_, source, std::chrono::steady_clock::now());
    }

    limits::limiter limiter_{limits_config{}, {}, true};
    const dispatcher dispatcher_{some_routes(), credentials(), http_config{}, limiter_};
    const client_certificate certificate_{"CN=operator", {}, {}};
    const dispatcher::sender with_key_{"Bearer secret", "", "localhost", "127.0.0.1", nullptr};
    const dispatcher::sender with_certificate_{"", "", "localhost", "127.0.0.1", &certificate_};
    request request_;
};

TEST_F(http_dispatcher_rights, route_that_names_resources_then_some_suffice) {
    EXPECT_NE(prepare("/named", with_key_).target, nullptr);
    EXPECT_EQ(request_.principal, "orders");
    EXPECT_TRUE(request_.rights->require(scope::leases, "orders/1"));
    EXPECT_EQ(prepare("/leases", with_key_).answer.status, 403U);
    EXPECT_EQ(prepare("/all", with_key_).answer.status, 403U);
}

TEST_F(http_dispatcher_rights, certificate_of_the_connection_then_its_principal) {
    const auto decision = prepare("/all", with_certificate_);
    EXPECT_NE(decision.target, nullptr);
    EXPECT_EQ(decision.principal(), "operator");
    EXPECT_EQ(prepare("/named", with_certificate_).answer.status, 403U);
}

TEST_F(http_dispatcher_rights, no_credential_then_no_rights) {
    EXPECT_EQ(prepare("/all", {"", "", "localhost", "127.0.0.1", nullptr}).answer.status, 401U);
    EXPECT_FALSE(request_.rights->require_for_some(scope::operate));
}

TEST_F(http_dispatcher_rights, route_about_the_caller_then_nobody_may_use_it_too) {
    const auto nobody = prepare("/caller", {"", "", "localhost", "127.0.0.1", nullptr});
    EXPECT_NE(nobody.target, nullptr);
    EXPECT_FALSE(nobody.caller);
    EXPECT_FALSE(request_.rights->require_for_some(scope::leases));
    EXPECT_EQ(prepare("/caller", with_key_).principal(), "orders");
    EXPECT_EQ(prepare("/caller", with_certificate_).principal(), "operator");
    const client_certificate unknown{"CN=nobody", {}, {}};
    for (const auto& wrong : {dispatcher::sender{"Bearer wrong", "", "localhost", "127.0.0.1", nullptr},
                              dispatcher::sender{"", "wrong", "localhost", "127.0.0.1", nullptr},
                              dispatcher::sender{"", "", "localhost", "127.0.0.1", &unknown}})
        EXPECT_EQ(prepare("/caller", wrong).answer.status, 401U);
}

TEST_F(http_dispatcher_rights, request_keeps_its_rights_alive) {
    auto own = std::make_unique<dispatcher>(some_routes(), credentials(), http_config{}, limiter_);
    request r;
    r.verb = method::get;
    r.path = "/all";
    ASSERT_NE(own->prepare(r, with_certificate_, std::chrono::steady_clock::now()).target, nullptr);
    own.reset();
    EXPECT_TRUE(r.rights->require(scope::operate));
}

TEST_F(http_dispatcher_rights, foreign_page_then_refused_where_certificates_count) {
    request_ = {};
    request_.verb = method::get;
    request_.path = "/all";
    request_.headers.emplace_back("origin", "https://evil.example");
    EXPECT_EQ(dispatcher_.prepare(request_, with_certificate_, std::chrono::steady_clock::now()).answer.status, 403U);
    auth_config keys_only = credentials();
    keys_only.client_certificates.clear();
    const dispatcher without(some_routes(), keys_only, http_config{}, limiter_);
    EXPECT_EQ(without.prepare(request_, with_certificate_, std::chrono::steady_clock::now()).answer.status, 401U);
}

TEST_F(http_dispatcher_rights, page_of_allowed_origin_then_certificate_does_not_count) {
    http_config cfg;
    cfg.allowed_origins = {"https://shop.example", "https://localhost"};
    const dispatcher allowing(some_routes(), credentials(), cfg, limiter_);
    const auto prepare_from = [&](const std::string& origin, const std::string& path, dispatcher::sender source) {
        request_ = {};
        request_.verb = method::get;
        request_.path = path;
        request_.headers.emplace_back("origin", origin);
        source.host = "localhost:443";
        return allowing.prepare(request_, source, std::chrono::steady_clock::now());
    };
    EXPECT_EQ(prepare_from("https://shop.example", "/all", with_certificate_).answer.status, 401U);
    EXPECT_NE(prepare_from("https://shop.example", "/named", with_key_).target, nullptr);
    EXPECT_EQ(prepare_from("https://localhost", "/all", with_certificate_).principal(), "operator") << "its own page";
}

}  // namespace
}  // namespace fencegate::http
