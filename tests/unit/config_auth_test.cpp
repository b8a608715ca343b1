#include "token_issuer.hpp"

#include <gateway/config/sections.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace fencegate {
namespace {

using faults_of_paths = std::vector<std::string>;

const std::string hash(64, 'b');

struct section_outcome {
    auth_config read;
    faults_of_paths faults;
};

/// Reads the section `auth` with relative files in the folder of this process' temporary files.
section_outcome read_auth(const std::string& yaml) {
    section_outcome out;
    config_reader::fault_list faults;
    auth_section(out.read, ::testing::TempDir())(YAML::Load(yaml), "auth", faults);
    out.faults = faults.all();
    return out;
}

/// Reads one API key with further members.
section_outcome read_key(const std::string& members) {
    return read_auth("{api_keys: [{principal: p, key_sha256: " + hash + ", " + members + "}]}");
}

std::string numbered(std::size_t count, const std::string& before, const std::string& after) {
    std::string out = "[";
    for (std::size_t i = 0; i < count; ++i)
        out += before + std::to_string(i) + after + ", ";
    return out + "]";
}

TEST(config_auth, key_with_all_rights_members) {
    const auto got = read_key(R"(scopes: [history],
        prefixes: [{resource_prefix: orders/, scopes: [leases, writes]}, {resource_prefix: orders/closed/, scopes: []}],
        exposed: [orders, place_order], database_role: shop_orders)");
    ASSERT_EQ(got.faults, faults_of_paths{});
    const rights_config& r = got.read.api_keys.at(0).rights;
    EXPECT_EQ(r.scopes, std::set{scope::history});
    ASSERT_EQ(r.prefixes.size(), 2U);
    EXPECT_EQ(r.prefixes[0].resource_prefix, "orders/");
    EXPECT_EQ(r.prefixes[0].scopes, (std::set{scope::leases, scope::writes}));
    EXPECT_TRUE(r.prefixes[1].scopes.empty());
    ASSERT_TRUE(r.exposed);
    EXPECT_TRUE(r.exposed->contains("place_order"));
    EXPECT_EQ(r.database_role, "shop_orders");
}

TEST(config_auth, rights_left_out_then_everything_exposed) {
    const auto got = read_key("scopes: [writes]");
    ASSERT_EQ(got.faults, faults_of_paths{});
    EXPECT_FALSE(got.read.api_keys.at(0).rights.exposed);
    EXPECT_TRUE(got.read.api_keys.at(0).rights.database_role.empty());
    EXPECT_TRUE(read_key("scopes: [writes], exposed: []").read.api_keys.at(0).rights.exposed) << "none at all";
}

TEST(config_auth, prefixes_alone_are_enough) {
    for (const char* scopes : {"", "scopes: [], "})
        EXPECT_EQ(read_key(scopes + std::string("prefixes: [{resource_prefix: a, scopes: [leases]}]")).faults,
                  faults_of_paths{});
}

TEST(config_auth, two_keys_of_one_principal_then_both) {
    const auto got =
        read_auth("{api_keys: [{principal: p, key_sha256: " + hash +
                  ", scopes: [leases]}, {principal: p, key_sha256: " + std::string(64, 'c') + ", scopes: [leases]}]}");
    EXPECT_EQ(got.faults, faults_of_paths{});
    EXPECT_EQ(got.read.api_keys.size(), 2U);
}

TEST(config_auth, faulty_rights_are_named_by_their_path) {
    struct row {
        std::string members, fault;
    };
    const std::string key = "auth.api_keys[0]";
    const std::string no_scope = key + ".scopes: must name at least one scope, unless there are prefixes";
    for (const row& each : {
             row{"owner: x", key +
                                 ".owner: unknown key; known here: principal, key_sha256, key_file, scopes, prefixes, "
                                 "exposed, database_role"},
             row{"scopes: []", no_scope},
             row{"prefixes: []", no_scope},
             row{"prefixes: {}", key + ".prefixes: must be a list"},
             row{"prefixes: [{scopes: [leases]}]", key + ".prefixes[0].resource_prefix: is missing"},
             row{"prefixes: [{resource_prefix: a}]", key + ".prefixes[0].scopes: is missing"},
             row{"prefixes: [{resource_prefix: '', scopes: []}]", key + ".prefixes[0].resource_prefix: has no value"},
             row{"prefixes: [{resource_prefix: \"a\\tb\", scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: /a, scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: a//, scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: " + std::string(201, 'a') + ", scopes: []}]",
                 key + ".prefixes[0].resource_prefix: is not the beginning of a resource's name"},
             row{"prefixes: [{resource_prefix: a, scopes: []}, {resource_prefix: a, scopes: [leases]}]",
                 key + ".prefixes[1].resource_prefix: is given more than once"},
             row{"prefixes: [{resource_prefix: a, scopes: [write]}]",
                 key +
                     ".prefixes[0].scopes[0]: \"write\" is none of leases, writes, history, operate, bare_tokens; did "
                     "you mean writes?"},
             row{"prefixes: " + numbered(101, "{resource_prefix: p", ", scopes: []}"),
                 key + ".prefixes: has more than 100 entries"},
             row{"scopes: [leases], exposed: " + numbered(1001, "t", ""), key + ".exposed: has more than 1000 entries"},
             row{"scopes: [leases], exposed: [a, b, a]", key + ".exposed[2]: is named more than once"},
             row{"scopes: [leases], exposed: [" + std::string(129, 'a') + "]",
                 key + ".exposed[0]: must be at most 128 bytes without control characters"},
             row{"scopes: [leases], database_role: " + std::string(64, 'a'),
                 key + ".database_role: must be at most 63 bytes without control characters"},
         }) {
        auto faults = read_key(each.members).faults;
        std::erase_if(faults, [&](const std::string& fault) { return fault == no_scope && each.fault != no_scope; });
        EXPECT_EQ(faults, faults_of_paths{each.fault}) << each.members.substr(0, 100);
    }
}

TEST(config_auth, most_prefixes_and_names_are_accepted) {
    EXPECT_EQ(read_key("prefixes: " + numbered(100, "{resource_prefix: p", ", scopes: []}") +
                       ", exposed: " + numbered(1000, "t", ""))
                  .faults,
              faults_of_paths{});
}

void write_file(const std::string& name, const std::string& text) {
    std::ofstream(std::filesystem::path(::testing::TempDir()) / name) << text;
}

/// Reads the section jwt with these members beside the required ones.
section_outcome read_jwt(const std::string& members) {
    return read_auth("{jwt: {issuer: i, audience: a, " + members + "}}");
}

TEST(config_auth, jwt_with_all_members) {
    write_file("jwks.json", "{\"keys\":[" + token_issuer(token_issuer::kind::p256).jwk() + "]}");
    const auto got = read_auth(R"({jwt: {issuer: "https://issuer.example", audience: [a, b], jwks_file: jwks.json,
        refresh_ms: 20000, algorithms: [ES256], clock_skew_ms: 0, principal_claim: /client_id, scopes_claim: /roles,
        prefixes_claim: /f/prefixes, exposed_claim: /f/~1x, database_role_claim: /role}})");
    ASSERT_EQ(got.faults, faults_of_paths{});
    ASSERT_TRUE(got.read.jwt);
    const jwt_config& jwt = *got.read.jwt;
    EXPECT_EQ(jwt.issuer, "https://issuer.example");
    EXPECT_EQ(jwt.audiences, (std::vector<std::string>{"a", "b"}));
    ASSERT_TRUE(jwt.keys);
    EXPECT_NE(jwt.keys->find("key-1"), nullptr);
    EXPECT_EQ(jwt.refresh.count(), 20'000);
    EXPECT_EQ(jwt.algorithms, std::set{token_algorithm::es256});
    EXPECT_EQ(jwt.clock_skew.count(), 0);
    EXPECT_EQ(jwt.principal_claim, "/client_id");
    EXPECT_EQ(jwt.scopes_claim, "/roles");
    EXPECT_EQ(jwt.prefixes_claim, "/f/prefixes");
    EXPECT_EQ(jwt.exposed_claim, "/f/~1x");
    EXPECT_EQ(jwt.database_role_claim, "/role");
    EXPECT_FALSE(got.read.is_keyless());
}

TEST(config_auth, jwt_by_url_with_defaults) {
    for (const char* url :
         {"https://issuer.example/keys", "http://127.0.0.1:8000/keys", "http://localhost", "http://[::1]:1/a?b"}) {
        const auto got = read_jwt(std::string("jwks_url: \"") + url + '"');
        EXPECT_EQ(got.faults, faults_of_paths{}) << url;
        EXPECT_EQ(got.read.jwt->jwks_url, url);
        EXPECT_EQ(got.read.jwt->refresh.count(), 300'000);
        EXPECT_EQ(got.read.jwt->clock_skew.count(), 30'000);
        EXPECT_EQ(got.read.jwt->algorithms.size(), 3U);
        EXPECT_EQ(got.read.jwt->principal_claim, "/sub");
        EXPECT_EQ(got.read.jwt->scopes_claim, "/scope");
    }
}

TEST(config_auth, faulty_jwt_is_named_by_its_path) {
    write_file("weak.json", "{\"keys\":[" + token_issuer(token_issuer::kind::rsa_1024).jwk() + "," +
                                token_issuer(token_issuer::kind::p256).jwk() + "]}");
    write_file("empty.json", "");
    const std::string folder = std::filesystem::path(::testing::TempDir() + "/").lexically_normal().string();
    const std::string url = "jwks_url: \"https://issuer.example\", ";
    const std::string no_url = "auth.jwt.jwks_url: has to be an https URL, or an http URL with a loopback host";
    const auto no_pointer = [](const std::string& claim) {
        return "auth.jwt." + claim +
               ": has to be a JSON pointer of at most 200 bytes, such as /scope or /fencegate/scopes";
    };
    struct row {
        std::string members, fault;
    };
    for (const row& each :
         {row{"", "auth.jwt: needs one of jwks_file and jwks_url"},
          row{url + "jwks_file: x", "auth.jwt: needs one of jwks_file and jwks_url"},
          row{"jwks_file: absent.json",
              "auth.jwt.jwks_file: cannot read " + folder + "absent.json: No such file or directory"},
          row{"jwks_file: weak.json", "auth.jwt.jwks_file: " + folder +
                                          "weak.json keys[0] is an RSA key of 1024 bits; it has to have 2048 to 8192"},
          row{"jwks_file: empty.json",
              "auth.jwt.jwks_file: " + folder + "empty.json is not a JSON Web Key Set: an object with an array `keys`"},
          row{"jwks_url: \"http://issuer.example\"", no_url},
          row{"jwks_url: \"ftp://localhost\"", no_url},
          row{"jwks_url: \"https://user:word@issuer.example\"", no_url},
          row{"jwks_url: \"https://\"", no_url},
          row{"jwks_url: \"http://localhost.evil.example\"", no_url},
          row{"jwks_url: \"https://a b\"", no_url},
          row{"jwks_url: \"http://127.0.0.1@evil.example/\"", no_url},
          row{url + "jwks_ca_file: absent.pem",
              "auth.jwt.jwks_ca_file: cannot read " + folder + "absent.pem: No such file or directory"},
          row{"jwks_file: empty.json, jwks_ca_file: empty.json",
              "auth.jwt.jwks_ca_file: has no readable certificate in PEM, or a damaged one"},
          row{url + "refresh_ms: 9999", "auth.jwt.refresh_ms: 9999 is not between 10000 and 86400000"},
          row{url + "clock_skew_ms: 300001", "auth.jwt.clock_skew_ms: 300001 is not between 0 and 300000"},
          row{url + "algorithms: [HS256]",
              "auth.jwt.algorithms[0]: \"HS256\" is none of RS256, ES256, EdDSA; did you mean RS256?"},
          row{url + "algorithms: []", "auth.jwt.algorithms: must have at least one entry"},
          row{url + "audience: []", "auth.jwt.audience: is given more than once (line 1)"},
          row{url + "scopes_claim: scope", no_pointer("scopes_claim")},
          row{url + "prefixes_claim: /a~2", no_pointer("prefixes_claim")},
          row{url + "exposed_claim: /a~", no_pointer("exposed_claim")}}) {
        const auto faults = read_jwt(each.members).faults;
        EXPECT_NE(std::ranges::find(faults, each.fault), faults.end())
            << each.members << ": " << ::testing::PrintToString(faults);
    }
    EXPECT_EQ(read_auth("{jwt: {" + url + "}}").faults,
              (faults_of_paths{"auth.jwt.issuer: is missing", "auth.jwt.audience: is missing"}));
    EXPECT_EQ(read_auth("{jwt: {issuer: i, audience: [], " + url + "}}").faults,
              faults_of_paths{"auth.jwt.audience: must have at least one entry"});
}

TEST(config_auth, client_certificates) {
    const auto got = read_auth(R"({client_certificates: [
        {principal: a, subject: "CN=a,O=Shop", scopes: [leases]},
        {principal: b, dns: b.example, scopes: [], prefixes: [{resource_prefix: b/, scopes: [leases]}]},
        {principal: c, uri: "spiffe://shop.example/c", scopes: [writes], exposed: [orders]}]})");
    ASSERT_EQ(got.faults, faults_of_paths{});
    const auto& read = got.read.client_certificates;
    ASSERT_EQ(read.size(), 3U);
    using field = certificate_config::field;
    EXPECT_EQ(std::pair(read[0].compared, read[0].value), std::pair(field::subject, std::string("CN=a,O=Shop")));
    EXPECT_EQ(std::pair(read[1].compared, read[1].value), std::pair(field::dns, std::string("b.example")));
    EXPECT_EQ(std::pair(read[2].compared, read[2].value),
              std::pair(field::uri, std::string("spiffe://shop.example/c")));
    EXPECT_EQ(read[1].rights.prefixes.size(), 1U);
    EXPECT_FALSE(got.read.is_keyless());
    EXPECT_EQ(read_auth("{client_certificates: [{principal: a, scopes: [leases]}]}").faults,
              faults_of_paths{"auth.client_certificates[0]: needs exactly one of subject, dns and uri"});
    EXPECT_EQ(read_auth("{client_certificates: [{principal: a, dns: x, uri: y, scopes: [leases]}]}").faults,
              faults_of_paths{"auth.client_certificates[0]: needs exactly one of subject, dns and uri"});
    EXPECT_EQ(read_auth("{client_certificates: [{principal: a, dns: x, scopes: [leases]}, {principal: b, dns: x, "
                        "scopes: [leases]}]}")
                  .faults,
              faults_of_paths{"auth.client_certificates[1]: has the certificate of a again"});
}

}  // namespace
}  // namespace fencegate
