// gateway/config: HTTPS, permissions of secret files, which keys a running gateway can change,
// and which need a restart.
#include <gateway/config/config.hpp>
#include <gateway/config/sections.hpp>

#include "digest_key.hpp"
#include "self_signed.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace fencegate {
namespace {

using paths = std::vector<std::string>;

class config_reload : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "fencegate-reload-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        write("signing.key", std::string(64, 'a'));
        write("other.key", std::string(64, 'b'));
        write("digest.key", digest_key);
        write("digest.pub", digest_public_key);
        write("gateway.pem", pair_.certificate);
        write("gateway.key", pair_.key);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
    config load(const std::string& yaml, config_faults& faults) const {
        write("gateway.yaml", yaml);
        return load_config(folder_ / "gateway.yaml", faults);
    }
    config must_load(const std::string& yaml) const {
        config_faults faults;
        config cfg = load(yaml, faults);
        EXPECT_EQ(faults, config_faults{}) << yaml;
        return cfg;
    }
    config_faults faults_of(const std::string& tls) const {
        config_faults faults;
        load(least_ + "http: {tls: {" + tls + "}}\n", faults);
        return faults;
    }

    const self_signed pair_;
    const std::string least_ =
        "redis: {nodes: [{name: a, host: h}]}\npostgres: {conninfo: host=/tmp}\n"
        "lease: {signing_key_file: signing.key}\n";
    std::filesystem::path folder_;
};

TEST_F(config_reload, faulty_key_is_named_by_its_position) {
    const std::string without_key = "redis: {nodes: [{name: a, host: h}]}\npostgres: {conninfo: host=/tmp}\n";
    write("short.key", "tiny");
    config_faults faults;
    load(without_key + "lease: {signing_key_file: short.key}\n", faults);
    EXPECT_EQ(faults, config_faults{"lease.signing_key_file: the key has 4 bytes; it needs at least 32"});
    load(without_key + "lease: {signing_key_file: signing.key, verification_key_files: [none.key, short.key]}\n",
         faults);
    ASSERT_EQ(faults.size(), 2U);
    EXPECT_TRUE(faults[0].starts_with("lease.verification_key_files[0]: cannot read ")) << faults[0];
    EXPECT_EQ(faults[1], "lease.verification_key_files[1]: the key has 4 bytes; it needs at least 32");
}

/// Returns the paths of all keys that the example explains: those of its sections, also where a comment has them.
paths keys_of_example() {
    std::ifstream in(std::filesystem::path(FENCEGATE_SOURCE_DIR) / "config/fencegate.yaml");
    const std::regex section_line("^([a-z]+):.*"), key_line("^  (# )?([a-z_0-9]+):.*"),
        value_line("^([a-z]+): +[^# ].*");
    std::string line, section;
    paths found;
    for (std::smatch match; std::getline(in, line);) {
        if (std::regex_match(line, match, section_line)) section = match[1];
        if (std::regex_match(line, value_line)) {  // a key without a section
            found.push_back(section);
        } else if (section == "limits") {  // is reloaded as a whole
            if (std::ranges::find(found, section) == found.end()) found.push_back(section);
        } else if (std::regex_match(line, match, key_line)) {
            found.push_back(section + "." + match[2].str());
        }
    }
    return found;
}

TEST_F(config_reload, every_key_is_reloaded_or_needs_restart) {
    config running = must_load(least_);
    const config wanted = must_load(R"(
cell: 1
http: {address: 127.0.0.2, port: 1, threads: 2,
  tls: {certificate_file: gateway.pem, key_file: gateway.key, client_ca_file: gateway.pem},
  body_max_bytes: 2048, allowed_hosts: [shop.example], allowed_origins: ["https://shop.example"], gzip_min_bytes: 100,
  header_max_bytes: 4096, header_fields_max: 20, connections_max: 7, connections_per_address_max: 3,
  bodies_max_bytes: 3145728, answers_max_bytes: 2097152, idle_timeout_ms: 1500, request_timeout_ms: 700,
  shutdown_grace_ms: 800}
auth:
  api_keys: [{principal: p,
    key_sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, scopes: [leases]}]
  jwt: {issuer: i, audience: a, jwks_url: "https://i.example/keys"}
  client_certificates: [{principal: p, dns: p.example, scopes: [leases]}]
lease: {default_ttl_ms: 5000, max_ttl_ms: 20000, answer_bound_ms: 700, max_wait_ms: 0, max_renewals: 3,
  max_hold_ms: 50000, handoff_max: 1, waiters_max: 11, leak_scan_interval_ms: 0, signing_key_file: other.key,
  verification_key_files: [signing.key]}
redis: {nodes: [{name: a, host: other}], tls: {ca_file: gateway.pem}, node_timeout_ms: 150,
  node_dead_after_ms: 900, node_queue_max: 120}
postgres: {conninfo: host=db, connections: 2, queue_max: 13, rows_max: 17, statement_timeout_ms: 3000,
  lock_timeout_ms: 1000, guard_check_interval_ms: 900}
writes: {idempotency_ttl_ms: 60000}
audit: {buffer_max: 5000, on_full: drop, digest_key_file: digest.key, digest_public_key_files: [digest.pub],
  digest_interval_ms: 2000, digest_file: digests.ndjson, record_reads: true}
history: {keep_days: 90}
limits: {principals: [{principal: p, leases_max: 1}]}
log: {level: debug, json: false, core_dumps: true}
)");
    const paths restart = find_restart_only_changes(running, wanted);
    const paths reloaded = adopt_reloadable(running, wanted);
    EXPECT_EQ(reloaded, (paths{"http.tls", "http.allowed_hosts", "http.allowed_origins", "auth.api_keys", "auth.jwt",
                               "auth.client_certificates", "lease.signing_key_file", "lease.verification_key_files",
                               "limits", "log.level"}));
    paths all = restart;
    all.insert(all.end(), reloaded.begin(), reloaded.end());
    paths expected = keys_of_example();
    std::ranges::sort(all);
    std::ranges::sort(expected);
    EXPECT_EQ(all, expected);
    EXPECT_EQ(find_restart_only_changes(running, wanted), restart);
    EXPECT_EQ(adopt_reloadable(running, wanted), paths{});
}

TEST_F(config_reload, content_of_secret_file_counts_not_its_name) {
    const config running = must_load(least_);
    write("same.key", std::string(64, 'a') + "\n");
    std::string renamed = least_;
    renamed.replace(renamed.find("signing.key"), 11, "same.key");
    EXPECT_EQ(find_restart_only_changes(running, must_load(renamed)), paths{});
    write("signing.key", std::string(64, 'c'));
    config changed = running;
    EXPECT_EQ(adopt_reloadable(changed, must_load(least_)), paths{"lease.signing_key_file"});
}

TEST_F(config_reload, default_written_out_is_no_change) {
    const config running = must_load(least_);
    EXPECT_EQ(find_restart_only_changes(running, must_load(least_ + "http: {port: 8080}\n")), paths{});
}

TEST_F(config_reload, tls_keys_reach_their_fields) {
    const config cfg = must_load(least_ +
                                 "http: {tls: {certificate_file: gateway.pem, key_file: gateway.key, minimum_version: "
                                 "\"1.3\", client_ca_file: gateway.pem, client_certificates: required}}\n");
    ASSERT_TRUE(cfg.tls);
    EXPECT_EQ(cfg.tls->certificates, pair_.certificate);
    EXPECT_EQ(cfg.tls->key, pair_.key);
    EXPECT_EQ(cfg.tls->minimum_version, tls_version::v1_3);
    EXPECT_EQ(cfg.tls->client_authorities, pair_.certificate);
    EXPECT_TRUE(cfg.tls->client_certificates_required);
    EXPECT_EQ(find_expired_certificates(cfg.tls), paths{});
}

TEST_F(config_reload, tls_faults_name_the_file) {
    const std::string certificate = "certificate_file: gateway.pem, ", key = "key_file: ";
    write("weak.key", self_signed(EVP_RSA_gen(1024)).key);
    write("stranger.key", self_signed().key);
    write("long", std::string((64 << 10) + 1, 'x'));
    write("damaged.pem", pair_.certificate + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    EXPECT_EQ(faults_of(certificate + key + "stranger.key"),
              config_faults{"http.tls.key_file: is not the key of the first certificate in certificate_file"});
    EXPECT_EQ(faults_of(certificate + key + "weak.key"),
              config_faults{"http.tls.key_file: is too weak: it needs 112 bits of security, such as RSA with 2048 bits "
                            "or ECDSA P-256"});
    EXPECT_EQ(faults_of(certificate + key + "gateway.pem"),
              config_faults{"http.tls.key_file: has no readable private key in PEM"});
    EXPECT_EQ(faults_of(key + "gateway.key, certificate_file: damaged.pem"),
              config_faults{"http.tls.certificate_file: has no readable certificate in PEM, or a damaged one"});
    EXPECT_EQ(
        faults_of(key + "gateway.key, certificate_file: long"),
        config_faults{"http.tls.certificate_file: " + (folder_ / "long").string() + " is longer than 65536 bytes"});
}

TEST_F(config_reload, tls_encrypted_key_is_refused) {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    BIO* const out = BIO_new_file((folder_ / "encrypted.key").c_str(), "w");
    PEM_write_bio_PKCS8PrivateKey(out, key, EVP_aes_128_cbc(), "passphrase", 10, nullptr, nullptr);
    BIO_free(out);
    EVP_PKEY_free(key);
    EXPECT_EQ(faults_of("certificate_file: gateway.pem, key_file: encrypted.key"),
              config_faults{"http.tls.key_file: is encrypted; the gateway needs the key without a passphrase"});
}

TEST_F(config_reload, tls_expired_certificate_is_no_fault_but_named) {
    const self_signed expired(EVP_EC_gen("P-256"), -3600);
    write("gateway.pem", expired.certificate);
    write("gateway.key", expired.key);
    const config cfg = must_load(least_ + "http: {tls: {certificate_file: gateway.pem, key_file: gateway.key}}\n");
    const auto named = find_expired_certificates(cfg.tls);
    ASSERT_EQ(named.size(), 1U);
    EXPECT_EQ(named[0].find("http.tls.certificate_file: a certificate expired on 20"), 0U) << named[0];
}

TEST_F(config_reload, permissions_of_secret_files_for_all_are_warned_of) {
    for (const char* name : {"redis.password", "client.key", "older.key", "gateway.yaml"})
        write(name, std::string(64, name[0]));
    const auto warnings = [this](std::filesystem::perms permissions) {
        for (const auto& file : std::filesystem::directory_iterator(folder_))
            std::filesystem::permissions(file, permissions);
        return must_load(
                   "redis: {nodes: [{name: a, host: h, password_file: redis.password}, {name: b, host: i, "
                   "password_file: "
                   "redis.password}, {name: c, host: j}]}\n"
                   "postgres: {conninfo: host=/tmp password=secret}\n"
                   "lease: {signing_key_file: signing.key, verification_key_files: [older.key]}\n"
                   "http: {tls: {certificate_file: gateway.pem, key_file: gateway.key}}\n"
                   "auth: {api_keys: [{principal: p, scopes: [leases], key_file: client.key}]}\n")
            .warnings;
    };
    using std::filesystem::perms;
    EXPECT_EQ(warnings(perms{0640}), paths{});
    const auto warning = [this](const std::string& path, const std::string& name) {
        const std::string file = (folder_ / name).string();
        return path + ": " + file +
               " has permissions 0644, with access for every user of this machine; they should be 0640 or less (chmod "
               "o= " +
               file + ")";
    };
    EXPECT_EQ(
        warnings(perms{0644}),
        (paths{warning("redis.nodes[0].password_file", "redis.password"),
               warning("lease.signing_key_file", "signing.key"),
               warning("lease.verification_key_files[0]", "older.key"), warning("http.tls.key_file", "gateway.key"),
               warning("auth.api_keys[0].key_file", "client.key"), warning("postgres.conninfo", "gateway.yaml")}));
}

TEST_F(config_reload, changed_password_in_its_file_needs_no_restart) {
    const std::string nodes = "redis: {nodes: [{name: a, host: h, username: u, password_file: redis.password}]}\n";
    const std::string others = least_.substr(least_.find('\n') + 1);
    write("redis.password", "old");
    const config running = must_load(nodes + others);
    write("redis.password", "new");
    EXPECT_EQ(find_restart_only_changes(running, must_load(nodes + others)), paths{});
}

TEST_F(config_reload, exposure_needs_tls_and_keys_off_loopback) {
    const std::string tls = ", tls: {certificate_file: gateway.pem, key_file: gateway.key}";
    const std::string keys =
        "auth: {api_keys: [{principal: p, scopes: [leases], key_sha256: "
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}\n";
    const auto missing = [&](const std::string& address, bool with_tls, bool with_keys) {
        write("gateway.yaml",
              least_ + "http: {address: \"" + address + "\"" + (with_tls ? tls : "") + "}\n" + (with_keys ? keys : ""));
        config_faults faults;
        const config cfg = load_config(folder_ / "gateway.yaml", faults, exposure_rule::allow);
        EXPECT_EQ(faults, config_faults{});
        return find_exposure_fault(cfg).value_or("");
    };
    const std::string start = " is not a loopback address, which it must be ";
    EXPECT_EQ(missing("127.0.0.1", false, false), "");
    EXPECT_EQ(missing("::1", false, false), "");
    EXPECT_EQ(missing("0.0.0.0", true, true), "");
    EXPECT_EQ(missing("0.0.0.0", true, false), "0.0.0.0" + start + "without credentials in auth");
    EXPECT_EQ(missing("::", false, true), "::" + start + "without http.tls");
    EXPECT_EQ(missing("10.0.0.1", false, false),
              "10.0.0.1" + start + "without credentials in auth and without http.tls");
}

}  // namespace
}  // namespace fencegate
