#include "token_issuer.hpp"

#include <gateway/http/identity/json_web_token.hpp>

#include <gtest/gtest.h>

#include <openssl/hmac.h>

#include <array>
#include <set>

namespace fencegate::http {
namespace {

using namespace std::chrono_literals;
using kind = token_issuer::kind;
using std::chrono::system_clock;

constexpr std::int64_t now_s = 1'800'000'000;
constexpr system_clock::time_point now{std::chrono::seconds(now_s)};
constexpr std::array signing_kinds{kind::rsa_2048, kind::p256, kind::ed25519};

jwt_config settings() {
    jwt_config out;
    out.issuer = "https://issuer.example";
    out.audiences = {"fencegate", "other"};
    out.prefixes_claim = "/fencegate/prefixes";
    out.exposed_claim = "/fencegate/exposed";
    out.database_role_claim = "/fencegate/role";
    return out;
}

/// Returns the claims of a good token, and further ones after a comma.
std::string claims(const std::string& more = "") {
    return R"({"iss":"https://issuer.example","aud":"fencegate","sub":"orders","exp":)" + std::to_string(now_s + 60) +
           R"(,"scope":"openid leases writes")" + more + "}";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
}

boost::system::result<identity, token_fault> verify(const token_issuer& issuer, const std::string& token,
                                                    const jwt_config& cfg = settings()) {
    return verify_token(token, cfg, issuer.key_set(), now);
}

std::string fault_of(const token_issuer& issuer, const std::string& token) {
    const auto verified = verify(issuer, token);
    return verified ? "" : std::string(verified.error().detail);
}

TEST(http_json_web_token, good_token_of_each_algorithm) {
    for (const kind k : signing_kinds) {
        const token_issuer issuer(k);
        const auto verified = verify(issuer, issuer.token(claims()));
        ASSERT_TRUE(verified) << verified.error().detail;
        EXPECT_EQ(verified->principal, "orders");
        EXPECT_TRUE(verified->rights.require(scope::leases));
        EXPECT_TRUE(verified->rights.require(scope::writes));
        EXPECT_FALSE(verified->rights.require_for_some(scope::history));
        EXPECT_TRUE(verified->rights.require_exposed("inventory"));
        EXPECT_EQ(verified->rights.valid_until(), now + 90s);
    }
}

TEST(http_json_web_token, algorithm_not_configured_then_refused) {
    for (const kind k : signing_kinds) {
        const token_issuer issuer(k);
        jwt_config cfg = settings();
        cfg.algorithms.erase(issuer.key_set().keys().front().algorithm);
        const auto verified = verify(issuer, issuer.token(claims()), cfg);
        ASSERT_FALSE(verified);
        EXPECT_EQ(verified.error().detail, "The token's algorithm is not allowed.");
    }
}

TEST(http_json_web_token, every_changed_character_is_refused) {
    for (const kind k : signing_kinds) {
        const token_issuer issuer(k);
        const std::string good = issuer.token(claims());
        for (std::size_t i = 0; i < good.size(); ++i) {
            std::string changed = good;
            changed[i] = changed[i] == 'A' ? 'B' : 'A';
            EXPECT_FALSE(verify(issuer, changed)) << "character " << i << " of " << good;
        }
        EXPECT_FALSE(verify(issuer, good + "A"));
        EXPECT_FALSE(verify(issuer, good.substr(0, good.size() - 1)));
    }
}

TEST(http_json_web_token, another_spelling_of_the_same_bytes_is_refused) {
    const token_issuer issuer(kind::ed25519);
    const std::string good = issuer.token(claims());  // 64 bytes: two unused bits in the last character
    const std::string alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::string other = good;
    other.back() = alphabet[alphabet.find(good.back()) + 1];
    EXPECT_EQ(fault_of(issuer, other), "The token is not a JSON Web Token of three parts in base64url.");
    EXPECT_EQ(fault_of(issuer, good + "=="), "The token is not a JSON Web Token of three parts in base64url.");
}

TEST(http_json_web_token, malformed_form_is_refused) {
    const token_issuer issuer(kind::p256);
    const std::string good = issuer.token(claims());
    for (const std::string& token :
         {std::string(), std::string("."), std::string(".."), std::string("a.b.c"), good + ".", "." + good,
          replaced(good, ".", ""), replaced(good, ".", "..") + ".x.y", " " + good, good + "\n",
          issuer.token("[]", claims()), issuer.token("{", claims()), issuer.token("", claims()),
          issuer.token(R"({"alg":"ES256","alg":"ES256","kid":"key-1"})", claims()),
          issuer.token(std::string(40, '[') + std::string(40, ']'), claims())}) {
        EXPECT_EQ(fault_of(issuer, token), "The token is not a JSON Web Token of three parts in base64url.") << token;
    }
    for (const std::string& payload : {std::string("[]"), std::string("{\"iss\":"), claims(R"(,"sub":"admin")")})
        EXPECT_EQ(fault_of(issuer, issuer.token(payload)),
                  "The token is not a JSON Web Token of three parts in base64url.")
            << payload;
}

TEST(http_json_web_token, longer_than_8_kib_is_refused) {
    const token_issuer issuer(kind::p256);
    const auto padded = [&](std::size_t bytes) {
        return issuer.token(claims(",\"x\":\"" + std::string(bytes, 'x') + '"'));
    };
    EXPECT_EQ(fault_of(issuer, padded(5'600)), "");
    EXPECT_EQ(fault_of(issuer, padded(6'400)), "The token is longer than 8 KiB.");
}

TEST(http_json_web_token, header_that_is_not_allowed_is_refused) {
    const token_issuer issuer(kind::rsa_2048);
    const auto fault = [&](const std::string& header) { return fault_of(issuer, issuer.token(header, claims())); };
    const std::string bad_algorithm = "The token's algorithm is not allowed.";
    const std::string bad_header = "The token's header is not allowed.";
    const std::string bad_kid = "The token's header has no valid kid.";
    EXPECT_EQ(fault(R"({"alg":"RS256","kid":"key-1"})"), "");
    EXPECT_EQ(fault(R"({"alg":"RS256","kid":"key-1","typ":"at+jwt"})"), "");
    for (const char* name : {"none", "None", "HS256", "RS512", "PS256", "rs256", ""})
        EXPECT_EQ(fault(R"({"alg":")" + std::string(name) + R"(","kid":"key-1"})"), bad_algorithm) << name;
    EXPECT_EQ(fault(R"({"kid":"key-1"})"), bad_algorithm);
    EXPECT_EQ(fault(R"({"alg":256,"kid":"key-1"})"), bad_algorithm);
    for (const std::string& more :
         {std::string(R"("crit":["exp"])"), std::string(R"("crit":[])"), "\"jwk\":" + issuer.jwk(),
          std::string(R"("jku":"https://evil.example/keys")"), std::string(R"("x5u":"https://evil.example")"),
          std::string(R"("x5c":["MII"])"), std::string(R"("typ":"dpop+jwt")"), std::string(R"("typ":1)")})
        EXPECT_EQ(fault(R"({"alg":"RS256","kid":"key-1",)" + more + "}"), bad_header) << more;
    for (const std::string& id : {std::string(R"("")"), std::string("1"), std::string("null"), std::string(R"("a b")"),
                                  std::string(R"("../../etc/passwd")"), std::string(R"("a\\b")"),
                                  std::string(R"("key-1\u0001")"), '"' + std::string(257, 'k') + '"'})
        EXPECT_EQ(fault(R"({"alg":"RS256","kid":)" + id + "}"), bad_kid) << id;
    EXPECT_EQ(fault(R"({"alg":"RS256"})"), bad_kid);
}

TEST(http_json_web_token, unknown_kid_is_reported_as_such) {
    const token_issuer issuer(kind::p256), other(kind::p256, "key-2");
    const auto refused = verify(issuer, other.token(claims()));
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().unknown_key);
    const auto changed = verify(issuer, issuer.token(claims()) + "A");
    ASSERT_FALSE(changed);
    EXPECT_FALSE(changed.error().unknown_key);
}

TEST(http_json_web_token, key_of_another_algorithm_is_refused) {
    const token_issuer rsa(kind::rsa_2048);
    for (const kind k : {kind::p256, kind::ed25519}) {
        const token_issuer other(k);  // with the same kid
        EXPECT_EQ(fault_of(rsa, other.token(claims())), "The token's algorithm is not that of its key.");
        EXPECT_EQ(fault_of(other, rsa.token(claims())), "The token's algorithm is not that of its key.");
    }
}

TEST(http_json_web_token, public_key_as_a_shared_secret_is_refused) {
    const token_issuer issuer(kind::rsa_2048);
    const std::string text = base64url(R"({"alg":"HS256","kid":"key-1"})") + "." + base64url(claims());
    const std::string secret = issuer.jwk();
    std::string mac(32, '\0');
    unsigned int size = 0;
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), reinterpret_cast<unsigned char*>(mac.data()),
         &size);
    EXPECT_EQ(fault_of(issuer, text + "." + base64url(mac)), "The token's algorithm is not allowed.");
}

TEST(http_json_web_token, signature_of_another_key_is_refused) {
    for (const kind k : signing_kinds) {
        const token_issuer issuer(k), other(k, "key-2");
        const std::string good = issuer.token(claims());
        const std::string text = good.substr(0, good.rfind('.'));
        for (const std::string& signature :
             {other.sign(text), std::string(64, '\0'), std::string(256, '\0'), std::string("x")})
            EXPECT_EQ(fault_of(issuer, text + "." + base64url(signature)), "The token's signature is not valid.");
    }
}

TEST(http_json_web_token, claims_that_do_not_fit_are_refused) {
    const token_issuer issuer(kind::ed25519);
    const auto fault = [&](const std::string& from, const std::string& to) {
        return fault_of(issuer, issuer.token(replaced(claims(), from, to)));
    };
    const std::string iss = R"("iss":"https://issuer.example")", aud = R"("aud":"fencegate")";
    const std::string exp = "\"exp\":" + std::to_string(now_s + 60);
    for (const char* to : {R"("iss":"https://issuer.example/")", R"("iss":1)", R"("iss":null)", R"("x":1)"})
        EXPECT_EQ(fault(iss, to), "The token is of another issuer.") << to;
    for (const char* to : {R"("aud":"fence")", R"("aud":[])", R"("aud":["x","y"])", R"("aud":[["fencegate"]])",
                           R"("aud":{})", R"("x":1)"})
        EXPECT_EQ(fault(aud, to), "The token is for another audience.") << to;
    for (const char* to : {R"("aud":["x","other"])", R"("aud":"other")"})
        EXPECT_EQ(fault(aud, to), "") << to;
    for (const char* to : {R"("exp":"1800000060")", R"("exp":null)", R"("exp":-1)", R"("exp":1e400)", R"("x":1)"})
        EXPECT_FALSE(fault(exp, to).empty()) << to;
    EXPECT_EQ(fault(exp, "\"exp\":1800000060.5"), "");
    EXPECT_EQ(fault(exp, "\"exp\":1.80000006e9"), "");
    EXPECT_EQ(fault(exp, "\"exp\":9223372036854775807"), "");
    for (const char* to : {R"("sub":"")", R"("sub":1)", R"("sub":["orders"])", R"("sub":"a\nb")", R"("x":1)"})
        EXPECT_EQ(fault(R"("sub":"orders")", to), "The token names no valid principal.") << to;
    EXPECT_EQ(fault(R"("sub":"orders")", "\"sub\":\"" + std::string(129, 'x') + '"'),
              "The token names no valid principal.");
    for (const char* to : {R"("scope":1)", R"("scope":null)", R"("scope":{"leases":true})", R"("scope":["leases",1])"})
        EXPECT_EQ(fault(R"("scope":"openid leases writes")", to), "The token's claim of scopes is malformed.") << to;
}

TEST(http_json_web_token, times_have_the_clock_skew) {
    const token_issuer issuer(kind::ed25519);
    const auto at = [&](const char* name, std::int64_t offset_s) {
        const std::string exp = "\"exp\":" + std::to_string(now_s + 60);
        const std::string given = std::string("\"") + name + "\":" + std::to_string(now_s + offset_s);
        return fault_of(issuer,
                        issuer.token(replaced(claims(), exp, name == std::string("exp") ? given : exp + "," + given)));
    };
    EXPECT_EQ(at("exp", -29), "");
    EXPECT_EQ(at("exp", -30), "The token has expired.");
    EXPECT_EQ(at("nbf", 30), "");
    EXPECT_EQ(at("nbf", 31), "The token is not valid yet.");
    for (const char* far :
         {"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616"}) {
        const std::string exp = "\"exp\":" + std::to_string(now_s + 60);
        EXPECT_EQ(fault_of(issuer, issuer.token(replaced(claims(), exp, std::string("\"exp\":") + far))), "") << far;
    }
}

TEST(http_json_web_token, scopes_of_an_array_or_another_claim) {
    const token_issuer issuer(kind::ed25519);
    jwt_config cfg = settings();
    cfg.scopes_claim = "/realm/roles";
    cfg.principal_claim = "/client~1id";
    const auto verified =
        verify(issuer, issuer.token(claims(R"(,"realm":{"roles":["operate","x"]},"client/id":"billing")")), cfg);
    ASSERT_TRUE(verified) << verified.error().detail;
    EXPECT_EQ(verified->principal, "billing");
    EXPECT_TRUE(verified->rights.require(scope::operate));
    EXPECT_FALSE(verified->rights.require_for_some(scope::leases)) << "the default claim does not count";
}

TEST(http_json_web_token, rights_of_claims_narrow_the_scopes) {
    const token_issuer issuer(kind::ed25519);
    const auto verified = verify(issuer, issuer.token(claims(R"(,"fencegate":{"role":"shop_orders","exposed":["orders"],
        "prefixes":[{"resource_prefix":"billing/","scopes":[]},
        {"resource_prefix":"jobs/","scopes":"leases operate"}]})")));
    ASSERT_TRUE(verified) << verified.error().detail;
    const rights& r = verified->rights;
    EXPECT_TRUE(r.require(scope::leases, "orders/1"));
    EXPECT_FALSE(r.require(scope::leases, "billing/1"));
    EXPECT_TRUE(r.require(scope::operate, "jobs/1"));
    EXPECT_FALSE(r.require(scope::writes, "jobs/1"));
    EXPECT_TRUE(r.require_exposed("orders"));
    EXPECT_FALSE(r.require_exposed("inventory"));
    ASSERT_TRUE(r.database());
    EXPECT_EQ(r.database()->role, "shop_orders");
    EXPECT_NE(r.database()->claims.find(R"("fencegate":{"role":"shop_orders")"), std::string::npos);
}

TEST(http_json_web_token, malformed_claims_of_rights_are_refused) {
    const token_issuer issuer(kind::ed25519);
    const auto fault = [&](const std::string& member) {
        return fault_of(issuer, issuer.token(claims(",\"fencegate\":{" + member + "}")));
    };
    std::string many = "\"prefixes\":[";
    for (int i = 0; i < 101; ++i)
        many += std::string(i == 0 ? "" : ",") + R"({"resource_prefix":"p)" + std::to_string(i) + R"(","scopes":[]})";
    for (const std::string& member :
         {std::string(R"("prefixes":null)"), std::string(R"("prefixes":{})"), std::string(R"("prefixes":["a"])"),
          std::string(R"("prefixes":[{"resource_prefix":"a"}])"), std::string(R"("prefixes":[{"scopes":[]}])"),
          std::string(R"("prefixes":[{"resource_prefix":"a","scopes":["write"]}])"),
          std::string(R"("prefixes":[{"resource_prefix":"a","scopes":null}])"),
          std::string(R"("prefixes":[{"resource_prefix":"","scopes":[]}])"),
          std::string(R"("prefixes":[{"resource_prefix":"/a","scopes":[]}])"),
          std::string(R"("prefixes":[{"resource_prefix":"a","scopes":[],"more":1}])"),
          std::string(
              R"("prefixes":[{"resource_prefix":"a","scopes":[]},{"resource_prefix":"a","scopes":["leases"]}])"),
          many + "]"})
        EXPECT_EQ(fault(member), "The token's claim of prefixes is malformed.") << member;
    for (const char* member : {R"("exposed":null)", R"("exposed":[1])", R"("exposed":[""])", R"("exposed":{})"})
        EXPECT_EQ(fault(member), "The token's claim of exposed names is malformed.") << member;
    for (const char* member : {R"("role":null)", R"("role":1)", R"("role":"")", R"("role":["a"])", R"("role":"none")"})
        EXPECT_EQ(fault(member), "The token's claim of the database role is malformed.") << member;
    EXPECT_EQ(fault(R"("prefixes":[],"exposed":[])"), "");
    for (const char* parent : {R"(,"fencegate":"orders")", R"(,"fencegate":["orders"])", R"(,"fencegate":null)"})
        EXPECT_EQ(fault_of(issuer, issuer.token(claims(parent))), "A claim of the token that has others is no object.");
}

}  // namespace
}  // namespace fencegate::http
