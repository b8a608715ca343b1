#include "token_issuer.hpp"

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using kind = token_issuer::kind;
using lines = std::vector<std::string>;

struct key_set_outcome {
    std::optional<token_key_set> keys;
    lines faults;
};

key_set_outcome parse(const std::string& json) {
    key_set_outcome out;
    out.keys = token_key_set::parse(json, out.faults);
    return out;
}

/// Parses a set with a good key, "good", and another one after it.
key_set_outcome parse_beside_good(const std::string& key) {
    return parse("{\"keys\":[" + token_issuer(kind::ed25519, "good").jwk() + "," + key + "]}");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
}

TEST(config_token_keys, one_key_of_each_kind) {
    const auto got = parse("{\"keys\":[" + token_issuer(kind::rsa_2048, "r").jwk(R"(,"use":"sig","alg":"RS256")") +
                           "," + token_issuer(kind::p256, "e").jwk(R"(,"key_ops":["verify"])") + "," +
                           token_issuer(kind::ed25519, "o").jwk() + "]}");
    ASSERT_TRUE(got.keys);
    EXPECT_EQ(got.faults, lines{});
    ASSERT_EQ(got.keys->keys().size(), 3U);
    EXPECT_EQ(got.keys->find("r")->algorithm, token_algorithm::rs256);
    EXPECT_EQ(got.keys->find("e")->algorithm, token_algorithm::es256);
    EXPECT_EQ(got.keys->find("o")->algorithm, token_algorithm::eddsa);
    EXPECT_EQ(got.keys->find("x"), nullptr);
}

TEST(config_token_keys, keys_for_other_purposes_are_left_out) {
    for (const std::string& key :
         {token_issuer(kind::p384, "x").jwk(), token_issuer(kind::rsa_2048, "x").jwk(R"(,"use":"enc")"),
          token_issuer(kind::rsa_2048, "x").jwk(R"(,"alg":"RSA-OAEP")"),
          token_issuer(kind::rsa_2048, "x").jwk(R"(,"alg":"PS256")"),
          token_issuer(kind::p256, "x").jwk(R"(,"key_ops":["sign"])"),
          std::string(R"({"kid":"x","kty":"oct","k":"c2VjcmV0"})"), std::string(R"({"kid":"x","kty":"new"})")}) {
        const auto got = parse_beside_good(key);
        ASSERT_TRUE(got.keys) << key;
        EXPECT_EQ(got.faults, lines{}) << key;
        EXPECT_EQ(got.keys->keys().size(), 1U) << key;
    }
}

TEST(config_token_keys, faulty_keys_are_named_and_left_out) {
    const std::string rsa = token_issuer(kind::rsa_2048, "x").jwk(), p256 = token_issuer(kind::p256, "x").jwk();
    const std::string ed = token_issuer(kind::ed25519, "x").jwk();
    const std::string point = p256.substr(p256.find("\"x\":\"") + 5, 43);
    for (const auto& [key, fault] : std::vector<std::pair<std::string, std::string>>{
             {token_issuer(kind::rsa_1024, "x").jwk(), "is an RSA key of 1024 bits; it has to have 2048 to 8192"},
             {token_issuer(kind::p256, "good").jwk(), "has the kid of another key"},
             {replaced(p256, "\"kid\":\"x\",", ""),
              "has no kid of 1 to 256 visible ASCII characters, without backslashes and successive dots"},
             {replaced(p256, "\"kid\":\"x\"", "\"kid\":\"" + std::string(257, 'k') + '"'),
              "has no kid of 1 to 256 visible ASCII characters, without backslashes and successive dots"},
             {token_issuer(kind::p256, "x").jwk(R"(,"d":"c2VjcmV0")"), "is a private key; give only the public one"},
             {replaced(p256, point, std::string(43, 'A')), "is not a valid EC key"},
             {replaced(p256, point, "AAAA"), "is not a valid EC key"},
             {replaced(rsa, "\"e\":\"AQAB\"", "\"e\":\"AQ\""), "is not a valid RSA key"},
             {replaced(rsa, "\"e\":\"AQAB\"", "\"e\":\"\""), "is not a valid RSA key"},
             {replaced(ed, "\"x\":\"", "\"x\":\"AAAA"), "is not a valid OKP key"},
             {"1", "is not an object"}}) {
        const auto got = parse_beside_good(key);
        ASSERT_TRUE(got.keys) << key;
        EXPECT_EQ(got.faults, lines{"keys[1] " + fault}) << key;
        EXPECT_EQ(got.keys->keys().size(), 1U);
    }
}

TEST(config_token_keys, text_that_is_no_key_set_is_refused) {
    const std::string no_set = "is not a JSON Web Key Set: an object with an array `keys`";
    for (const char* json : {"", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[]", "<html>"})
        EXPECT_EQ(parse(json).faults, lines{no_set}) << json;
    EXPECT_EQ(parse("{\"keys\":[]}").faults, lines{"has no key for RS256, ES256 or EdDSA that can be used"});
    EXPECT_EQ(parse(std::string(token_key_set::text_bytes_max + 1, ' ')).faults, lines{"is longer than 262144 bytes"});
    std::string many = "{\"keys\":[1";
    for (std::size_t i = 0; i < token_key_set::keys_max; ++i)
        many += ",1";
    EXPECT_EQ(parse(many + "]}").faults, lines{"has more than 100 keys"});
}

}  // namespace
}  // namespace fencegate
