#include <gateway/http/routing/auth.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

namespace fencegate::http {
namespace {

api_key make_key(std::string principal, std::string hash, std::set<scope> scopes) {
    api_key out;
    out.principal = std::move(principal);
    out.key_sha256 = std::move(hash);
    out.rights.scopes = std::move(scopes);
    return out;
}

authenticator::caller_result identify(const authenticator& a, std::string_view authorization,
                                      std::string_view x_api_key, const client_certificate* certificate = nullptr) {
    return a.identify(authorization, x_api_key, certificate, std::chrono::system_clock::now());
}

/// SHA-256 of "secret" and of "other".
const auth_config keys{
    {make_key("orders", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
              {scope::leases, scope::writes}),
     make_key("auditor", "d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa", {scope::history})},
    {},
    {}};

TEST(http_auth, no_keys_configured_then_dev_with_all_scopes) {
    const authenticator open(auth_config{});
    const auto caller = identify(open, "", "");
    ASSERT_TRUE(caller);
    EXPECT_EQ((*caller)->principal, "dev");
    for (const scope s : {scope::leases, scope::writes, scope::history, scope::operate, scope::bare_tokens})
        EXPECT_TRUE((*caller)->rights.require(s));
    EXPECT_TRUE((*caller)->rights.require_exposed("inventory"));
}

TEST(http_auth, known_key_then_its_principal) {
    const authenticator a(keys);
    for (const char* header : {"Bearer secret", "bearer secret", "BEARER  secret"}) {
        const auto caller = identify(a, header, "");
        ASSERT_TRUE(caller) << header;
        EXPECT_EQ((*caller)->principal, "orders");
        EXPECT_TRUE((*caller)->rights.require(scope::writes));
        EXPECT_FALSE((*caller)->rights.require(scope::operate));
    }
    EXPECT_EQ((*identify(a, "", "other"))->principal, "auditor");
}

TEST(http_auth, key_with_a_role_then_its_claims_name_the_principal) {
    auth_config with_role = keys;
    with_role.api_keys.front().rights.database_role = "shop";
    const authenticator a(with_role);
    const auto database = (*identify(a, "", "secret"))->rights.database();
    ASSERT_TRUE(database);
    EXPECT_EQ(database->role, "shop");
    EXPECT_EQ(database->claims, R"({"sub":"orders","role":"shop"})");
    EXPECT_FALSE((*identify(a, "", "other"))->rights.database());
}

TEST(http_auth, unknown_or_missing_key_then_unauthenticated) {
    const authenticator a(keys);
    for (const char* header : {"", "Bearer", "Bearer ", "Bearer Secret", "Bearer secret ", "Basic secret", "secret"}) {
        const auto caller = identify(a, header, "");
        ASSERT_FALSE(caller) << header;
        EXPECT_EQ(caller.error().cause.code, errc::unauthenticated);
    }
    EXPECT_FALSE(identify(a, "Bearer wrong", "secret")) << "a wrong key is not saved by a right one";
}

TEST(http_auth, caller_outlives_the_authenticator) {
    auto replaced = std::make_unique<authenticator>(keys);
    const auto caller = *identify(*replaced, "Bearer secret", "");
    replaced.reset();
    EXPECT_EQ(caller->principal, "orders");
    EXPECT_TRUE(caller->rights.require(scope::leases));
}

client_certificate certificate_of(std::string subject) {
    client_certificate out;
    out.subject = std::move(subject);
    return out;
}

TEST(http_auth, expired_certificate_then_unauthenticated) {
    auth_config cfg;
    cfg.client_certificates.emplace_back().value = "CN=orders";
    cfg.client_certificates.back().principal = "orders";
    const authenticator a(cfg);
    client_certificate certificate = certificate_of("CN=orders");
    certificate.valid_until = std::chrono::system_clock::now() + std::chrono::hours(1);
    EXPECT_TRUE(identify(a, "", "", &certificate));
    certificate.valid_until = std::chrono::system_clock::now();
    const auto caller = identify(a, "", "", &certificate);
    ASSERT_FALSE(caller);
    EXPECT_EQ(caller.error().cause.code, errc::unauthenticated);
}

TEST(http_auth, reload_then_only_callers_with_a_credential_are_accepted) {
    auth_config before = keys;
    before.client_certificates.emplace_back().value = "CN=shop";
    before.client_certificates.back().principal = "shop";
    const authenticator replaced(before);
    const client_certificate certificate = certificate_of("CN=shop");
    const auto orders = *identify(replaced, "", "secret"), auditor = *identify(replaced, "", "other"),
               shop = *identify(replaced, "", "", &certificate);
    auth_config after = before;
    after.api_keys.front().principal = "another";
    after.api_keys.back().rights.scopes = {scope::leases};
    const authenticator changed(after);
    EXPECT_FALSE(changed.accepts(*orders)) << "the key is another principal's now";
    EXPECT_TRUE(changed.accepts(*auditor));
    EXPECT_TRUE(changed.accepts(*shop));
    after.api_keys.clear();
    after.client_certificates.front().value = "CN=other";
    const authenticator without(after);
    EXPECT_FALSE(without.accepts(*auditor));
    EXPECT_FALSE(without.accepts(*shop));
    EXPECT_FALSE(without.accepts(**identify(authenticator(auth_config{}), "", ""))) << "dev";
}

TEST(http_auth, malformed_hash_then_invalid_argument) {
    EXPECT_THROW(authenticator({{make_key("x", "abc", {})}, {}, {}}), std::invalid_argument);
    EXPECT_THROW(authenticator({{make_key("x", std::string(64, 'g'), {})}, {}, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace fencegate::http
