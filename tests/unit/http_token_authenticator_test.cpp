#include "token_issuer.hpp"

#include <gateway/http/identity/token_authenticator.hpp>
#include <gateway/http/routing/auth.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace fencegate::http {
namespace {

using namespace std::chrono_literals;
using kind = token_issuer::kind;
using std::chrono::system_clock;

jwt_config settings(const token_issuer& issuer) {
    jwt_config out;
    out.issuer = "https://issuer.example";
    out.audiences = {"fencegate"};
    out.keys = issuer.key_set();
    return out;
}

std::string claims(const std::string& principal, system_clock::time_point expiry) {
    const auto exp = std::chrono::duration_cast<std::chrono::seconds>(expiry.time_since_epoch()).count();
    return R"({"iss":"https://issuer.example","aud":"fencegate","scope":"leases","sub":")" + principal + R"(","exp":)" +
           std::to_string(exp) + "}";
}

std::shared_ptr<const identity> caller_until(system_clock::time_point end) {
    return std::make_shared<const identity>(identity{"p", rights({}, end)});
}

token_cache::digest digest_of(unsigned char n) {
    token_cache::digest out{};
    out[0] = n;
    return out;
}

TEST(http_token_cache, least_recently_used_token_is_removed) {
    const auto keys = std::make_shared<const token_key_set>();
    const auto now = system_clock::now();
    token_cache cache(2);
    EXPECT_EQ(cache.find(digest_of(1), keys, now), nullptr);
    cache.insert(digest_of(1), keys, caller_until(now + 1s));
    cache.insert(digest_of(2), keys, caller_until(now + 1s));
    EXPECT_NE(cache.find(digest_of(1), keys, now), nullptr);
    cache.insert(digest_of(3), keys, caller_until(now + 1s));
    EXPECT_EQ(cache.size(), 2U);
    EXPECT_NE(cache.find(digest_of(1), keys, now), nullptr);
    EXPECT_EQ(cache.find(digest_of(2), keys, now), nullptr);
    EXPECT_NE(cache.find(digest_of(3), keys, now), nullptr);
}

TEST(http_token_cache, token_that_has_ended_is_removed) {
    const auto keys = std::make_shared<const token_key_set>();
    const auto now = system_clock::now();
    token_cache cache(2);
    cache.find(digest_of(1), keys, now);
    cache.insert(digest_of(1), keys, caller_until(now + 1s));
    EXPECT_NE(cache.find(digest_of(1), keys, now + 999ms), nullptr);
    EXPECT_EQ(cache.find(digest_of(1), keys, now + 1s), nullptr);
    EXPECT_EQ(cache.size(), 0U);
}

TEST(http_token_cache, other_keys_empty_it) {
    const auto keys = std::make_shared<const token_key_set>(), changed = std::make_shared<const token_key_set>();
    const auto now = system_clock::now();
    token_cache cache(2);
    cache.find(digest_of(1), keys, now);
    cache.insert(digest_of(1), keys, caller_until(now + 1s));
    EXPECT_EQ(cache.find(digest_of(1), changed, now), nullptr);
    cache.insert(digest_of(2), keys, caller_until(now + 1s));
    EXPECT_EQ(cache.size(), 0U) << "verified with the earlier keys";
}

/// Answers of jwks_url, and how often they were requested.
struct key_server {
    std::mutex mutex;
    std::optional<std::string> answer;
    std::atomic<int> requests = 0;
    std::condition_variable requested;

    token_key_source::fetch_function fetch() {
        return [this](const jwt_config&, const std::stop_token&, std::string& fault) {
            const std::lock_guard lock(mutex);
            ++requests;
            requested.notify_all();
            if (!answer) fault = "no answer";
            return answer;
        };
    }
    void set(std::optional<std::string> text) {
        const std::lock_guard lock(mutex);
        answer = std::move(text);
    }
    /// Waits until so many requests have been made. Out: false after 20 s.
    bool await(int count) {
        std::unique_lock lock(mutex);
        return requested.wait_for(lock, 20s, [&] { return requests >= count; });
    }
};

/// Waits until the source has a key with this `kid`. Out: false after 20 s.
bool await_key(const token_key_source& source, const std::string& kid) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (source.keys()->find(kid) == nullptr) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::yield();
    }
    return true;
}

jwt_config from_url(std::chrono::milliseconds refresh) {
    jwt_config out;
    out.jwks_url = "https://issuer.example/keys";
    out.refresh = refresh;
    return out;
}

std::string set_of(const std::string& keys) {
    return "{\"keys\":[" + keys + "]}";
}

TEST(http_token_key_source, first_keys_are_awaited) {
    key_server server;
    server.set(set_of(token_issuer(kind::ed25519, "a").jwk()));
    const token_key_source source(from_url(1h), 20s, server.fetch(), {});
    EXPECT_NE(source.keys()->find("a"), nullptr);
}

TEST(http_token_key_source, unknown_key_then_one_request_for_many) {
    key_server server;
    server.set(set_of(token_issuer(kind::ed25519, "a").jwk()));
    token_key_source source(from_url(1h), 20s, server.fetch(), {10s, 1h});
    server.set(set_of(token_issuer(kind::ed25519, "b").jwk()));
    source.request_for_unknown_key();
    ASSERT_TRUE(await_key(source, "b"));
    for (int i = 0; i < 300; ++i) {
        source.request_for_unknown_key();
        std::this_thread::yield();
    }
    EXPECT_EQ(server.requests, 2);
}

TEST(http_token_key_source, failed_request_keeps_the_keys) {
    key_server server;
    server.set(set_of(token_issuer(kind::ed25519, "a").jwk()));
    const token_key_source source(from_url(1ms), 20s, server.fetch(), {1ms, 60s});
    const auto before = source.keys();
    for (const std::optional<std::string>& answer :
         {std::optional<std::string>(), std::optional<std::string>("<html>")}) {
        server.set(answer);
        ASSERT_TRUE(server.await(server.requests + 3));
        EXPECT_EQ(source.keys(), before);
    }
    server.set(set_of(token_issuer(kind::ed25519, "b").jwk()));
    ASSERT_TRUE(await_key(source, "b"));
}

TEST(http_token_key_source, set_without_keys_withdraws_all) {
    key_server server;
    server.set(set_of(token_issuer(kind::ed25519, "a").jwk()));
    const token_key_source source(from_url(1ms), 20s, server.fetch(), {1ms, 60s});
    ASSERT_NE(source.keys()->find("a"), nullptr);
    server.set(set_of(""));
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_TRUE(source.keys()->keys().empty());
}

TEST(http_token_key_source, same_keys_in_another_text_are_the_same) {
    key_server server;
    const std::string key = token_issuer(kind::ed25519, "a").jwk();
    server.set(set_of(key));
    const token_key_source source(from_url(1ms), 20s, server.fetch(), {1ms, 60s});
    const auto before = source.keys();
    server.set(set_of(" " + key));
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_EQ(source.keys(), before);
}

TEST(http_token_key_source, same_answer_then_same_keys) {
    key_server server;
    server.set(set_of(token_issuer(kind::ed25519, "a").jwk()));
    const token_key_source source(from_url(1ms), 20s, server.fetch(), {1ms, 60s});
    const auto before = source.keys();
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_EQ(source.keys(), before) << "a cache of tokens is emptied by other keys only";
}

TEST(http_token_key_source, earlier_keys_are_used_until_an_answer) {
    key_server server;
    const auto earlier = std::make_shared<const token_key_set>(token_issuer(kind::ed25519, "a").key_set());
    const token_key_source source(from_url(1ms), 1h, server.fetch(), {1ms, 60s}, earlier);
    EXPECT_EQ(source.keys(), earlier) << "without waiting";
    ASSERT_TRUE(server.await(3));
    EXPECT_EQ(source.keys(), earlier) << "requests fail";
    server.set(set_of(token_issuer(kind::ed25519, "b").jwk()));
    ASSERT_TRUE(await_key(source, "b"));
}

TEST(http_token_key_source, fault_until_first_answer_of_new_url) {
    key_server server;
    const token_key_source source(from_url(1ms), 20s, server.fetch(), {1ms, 60s});
    EXPECT_EQ(source.fault(), "no answer");
    server.set("<html>");
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_TRUE(source.fault().starts_with("the answer ")) << source.fault();
    server.set(set_of(""));
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_EQ(source.fault(), "") << "a set without keys is an answer";
    server.set(std::nullopt);
    ASSERT_TRUE(server.await(server.requests + 3));
    EXPECT_EQ(source.fault(), "");
    const token_key_source continued(from_url(1h), 20s, server.fetch(), {}, source.keys());
    EXPECT_EQ(continued.fault(), "") << "it had no keys before either";
    const token_key_source silent(from_url(1h), 1ms,
                                  [](const auto&, const std::stop_token& stop, auto&) {
                                      while (!stop.stop_requested())
                                          std::this_thread::yield();
                                      return std::optional<std::string>();
                                  },
                                  {});
    EXPECT_EQ(silent.fault(), "there was no answer in time");
}

TEST(http_token_key_source, end_interrupts_a_request) {
    std::promise<void> started, stopped;
    const token_key_source::fetch_function hang = [&](const jwt_config&, const std::stop_token& stop,
                                                      std::string&) -> std::optional<std::string> {
        started.set_value();
        while (!stop.stop_requested())
            std::this_thread::yield();
        stopped.set_value();
        return std::nullopt;
    };
    {
        const token_key_source source(from_url(1h), 1ms, hang, {});
        started.get_future().wait();
    }
    EXPECT_EQ(stopped.get_future().wait_for(0s), std::future_status::ready);
}

TEST(http_token_authenticator, token_is_verified_once) {
    const token_issuer issuer(kind::rsa_2048);
    token_authenticator tokens(settings(issuer));
    const auto now = system_clock::now();
    const std::string token = issuer.token(claims("orders", now + 60s));
    const auto first = tokens.identify(token, now);
    ASSERT_TRUE(first) << first.error().detail;
    EXPECT_EQ(*tokens.identify(token, now), *first);
    const auto expired = tokens.identify(token, now + 91s);
    ASSERT_FALSE(expired);
    EXPECT_EQ(expired.error().detail, "The token has expired.");
}

/// SHA-256 of "secret".
constexpr const char* hash_of_secret = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

class http_credentials : public ::testing::Test {
  protected:
    static auth_config configured(const token_issuer& issuer) {
        auth_config out;
        out.api_keys.push_back({"orders", hash_of_secret, {{scope::writes}, {}, {}, {}}});
        out.jwt = settings(issuer);
        out.client_certificates.push_back(
            {"billing", certificate_config::field::dns, "billing.example", {{scope::leases}, {}, {}, {}}});
        return out;
    }
    std::string token(const std::string& principal) const {
        return "Bearer " + issuer_.token(claims(principal, now_ + 60s));
    }
    /// Returns the principal, or the detail of the refusal.
    std::string identify(const std::string& authorization, const std::string& x_api_key,
                         const client_certificate* certificate = nullptr) const {
        const auto caller = authenticator_.identify(authorization, x_api_key, certificate, now_);
        return caller ? (*caller)->principal : caller.error().cause.detail;
    }

    const token_issuer issuer_{kind::ed25519};
    const system_clock::time_point now_ = system_clock::now();
    const authenticator authenticator_{configured(issuer_)};
    const client_certificate known_{"CN=x", {"other.example", "billing.example"}, {}};
    const client_certificate unknown_{"CN=billing.example", {}, {"billing.example"}};
    const std::string missing_ =
        "Send an API key as 'Authorization: Bearer KEY' or in X-Api-Key, or a token as 'Authorization: Bearer TOKEN'.";
};

TEST_F(http_credentials, each_kind_alone) {
    EXPECT_EQ(identify("Bearer secret", ""), "orders");
    EXPECT_EQ(identify("", "secret"), "orders");
    EXPECT_EQ(identify(token("auditor"), ""), "auditor");
    EXPECT_EQ(identify("", "", &known_), "billing");
    EXPECT_EQ(identify("", ""), missing_);
    EXPECT_EQ(identify("", "", &unknown_),
              "The client certificate belongs to no principal (auth.client_certificates).");
}

TEST_F(http_credentials, several_then_all_valid_and_of_one_principal) {
    EXPECT_EQ(identify(token("orders"), "secret"), "orders");
    EXPECT_EQ(identify("Bearer secret", "secret"), "orders");
    EXPECT_EQ(identify(token("auditor"), "secret"), "The request has credentials of two principals.");
    EXPECT_EQ(identify(token("orders"), "wrong"), "The API key is not known.");
    EXPECT_EQ(identify("Bearer wrong", "secret"), "The API key is not known.");
    EXPECT_EQ(identify("Basic secret", "secret"), missing_);
}

TEST_F(http_credentials, key_or_token_counts_before_the_certificate) {
    EXPECT_EQ(identify("Bearer secret", "", &known_), "orders");
    EXPECT_EQ(identify(token("auditor"), "", &unknown_), "auditor");
    EXPECT_EQ(identify("Bearer wrong", "", &known_), "The API key is not known.");
}

TEST_F(http_credentials, two_dots_make_a_token_of_a_bearer) {
    const auto refused = authenticator_.identify("Bearer a.b.c", "", nullptr, now_);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().invalid_token);
    EXPECT_EQ(identify("", "a.b.c"), "The API key is not known.") << "X-Api-Key has no tokens";
    EXPECT_EQ(identify("Bearer a.b", ""), "The API key is not known.");
}

TEST_F(http_credentials, reload_then_tokens_of_the_same_key_and_rules_are_accepted) {
    const auth_config before = configured(issuer_);
    const authenticator first(before);
    const auto caller_of = [&](const authenticator& current) {
        return *current.identify(token("auditor"), "", nullptr, now_);
    };
    const auto caller = caller_of(first);
    EXPECT_TRUE(first.accepts(*caller));

    std::vector<std::string> faults;
    const token_issuer second(kind::ed25519, "key-2");
    auth_config more_keys = before;
    more_keys.jwt->keys = token_key_set::parse(set_of(issuer_.jwk() + "," + second.jwk()), faults);
    const authenticator rotated(more_keys, &first);
    EXPECT_TRUE(rotated.accepts(*caller)) << "its key is still there";
    more_keys.jwt->keys = second.key_set();
    EXPECT_FALSE(authenticator(more_keys, &rotated).accepts(*caller)) << "its key is gone";

    auth_config other_key = before;
    other_key.jwt->keys = token_issuer(kind::p256).key_set();
    ASSERT_NE(other_key.jwt->keys->find(issuer_.id()), nullptr) << "with the same kid";
    EXPECT_FALSE(authenticator(other_key, &first).accepts(*caller));

    auth_config other_rules = before;
    other_rules.jwt->audiences.emplace_back("another");
    const authenticator changed(other_rules, &first);
    EXPECT_FALSE(changed.accepts(*caller));
    const auto later = caller_of(changed);
    EXPECT_TRUE(changed.accepts(*later)) << "verified by the new rules";
    EXPECT_TRUE(authenticator(other_rules, &changed).accepts(*later));
    const authenticator back(before, &changed);
    EXPECT_FALSE(back.accepts(*later));
    EXPECT_FALSE(back.accepts(*caller)) << "ended by the reload before";
}

TEST_F(http_credentials, unknown_key_of_a_file_is_a_failed_authentication) {
    const token_issuer stranger(kind::ed25519, "stranger");
    const auto refused =
        authenticator_.identify("Bearer " + stranger.token(claims("x", now_ + 60s)), "", nullptr, now_);
    ASSERT_FALSE(refused);
    EXPECT_FALSE(refused.error().keys_outdated) << "no later answer of an issuer can have it";
}

TEST_F(http_credentials, tokens_alone_are_no_keyless_gateway) {
    auth_config cfg = configured(issuer_);
    cfg.api_keys.clear();
    cfg.client_certificates.clear();
    ASSERT_FALSE(cfg.is_keyless());
    const authenticator tokens_only(cfg);
    EXPECT_FALSE(tokens_only.identify("", "", nullptr, now_));
    EXPECT_FALSE(tokens_only.identify("Bearer secret", "", nullptr, now_));
    EXPECT_TRUE(tokens_only.identify(token("orders"), "", nullptr, now_));
}

TEST(http_certificate_rules, first_entry_that_matches_exactly) {
    using field = certificate_config::field;
    const certificate_rules rules({{"a", field::subject, "CN=a,O=Shop", {}},
                                   {"b", field::dns, "b.example", {}},
                                   {"c", field::uri, "spiffe://shop.example/c", {}},
                                   {"d", field::dns, "d.example", {}}});
    const auto principal = [&](const client_certificate& certificate) {
        const auto caller = rules.find(certificate);
        return caller ? caller->principal : "";
    };
    EXPECT_EQ(principal({"CN=a,O=Shop", {}, {}}), "a");
    EXPECT_EQ(principal({"CN=x", {"x", "b.example"}, {}}), "b");
    EXPECT_EQ(principal({"CN=x", {}, {"spiffe://shop.example/c"}}), "c");
    EXPECT_EQ(principal({"CN=x", {"d.example", "b.example"}, {"spiffe://shop.example/c"}}), "b");
    EXPECT_EQ(principal({"CN=a,O=Shop", {"b.example"}, {}}), "a");
    for (const client_certificate& other :
         {client_certificate{"CN=a", {}, {}}, client_certificate{"", {}, {}}, client_certificate{"b.example", {}, {}},
          client_certificate{"CN=x", {"B.example", "a.b.example", "CN=a,O=Shop"}, {"b.example"}}})
        EXPECT_EQ(principal(other), "");
}

}  // namespace
}  // namespace fencegate::http
