// gateway/config: reading a configuration file, and the texts of its faults.
#include <gtest/gtest.h>
#include <gateway/config/config.hpp>
#include <gateway/config/secrets.hpp>

#include <unistd.h>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>
#include "digest_key.hpp"

namespace fencegate {
namespace {
using namespace std::chrono_literals;

/// A folder with the configuration and the files that it names, deleted after the test.
class folder {
  public:
    folder() {
        std::string name = (std::filesystem::temp_directory_path() / "fencegate-config-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp");
        path_ = name;
        write("signing.key", std::string(64, 'a') + "\n");
    }
    ~folder() { std::filesystem::remove_all(path_); }

    void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
    std::filesystem::path file(const std::string& name) const { return path_ / name; }

    config_faults faults_of(const std::string& yaml) const {
        config_faults faults;
        load(yaml, faults);
        return faults;
    }
    config load(const std::string& yaml, config_faults& faults, exposure_rule exposure = exposure_rule::refuse) const {
        write("gateway.yaml", yaml);
        return load_config(file("gateway.yaml"), faults, exposure);
    }

  private:
    std::filesystem::path path_;
};

const std::string redis = "redis: {nodes: [{name: a, host: 127.0.0.1, port: 6401}]}\n";
const std::string postgres = "postgres: {conninfo: host=/tmp}\n";
const std::string lease = "lease: {signing_key_file: signing.key}\n", least = redis + postgres + lease;

TEST(config_load, smallest_file_takes_every_default) {
    folder here;
    config_faults faults;
    const config cfg = here.load(least, faults);
    ASSERT_EQ(faults, config_faults{});
    const config defaults;
    EXPECT_EQ(cfg.http.address, "127.0.0.1");
    EXPECT_EQ(cfg.http.port, defaults.http.port);
    EXPECT_EQ(cfg.protocol.default_ttl, 10s);
    EXPECT_EQ(cfg.protocol.nodes.size(), 1U);
    EXPECT_EQ(cfg.protocol.nodes[0].port, 6401);
    EXPECT_EQ(cfg.lease.signing_key, std::string(64, 'a'));
    EXPECT_TRUE(cfg.auth.is_keyless());
}

TEST(config_load, every_key_reaches_its_field) {
    folder here;
    here.write("orders.key", "a-long-random-key-of-orders\n");
    here.write("redis.password", "secret");
    here.write("other.key", std::string(32, 'o') + "\n");
    here.write("digest.key", digest_key);
    here.write("digest.pub", digest_public_key);
    setenv("FENCEGATE_TEST_PASSWORD", "from-environment", 1);
    config_faults faults;
    const config cfg = here.load(R"(
cell: 7
http: {address: 0.0.0.0, port: 0, threads: 3, body_max_bytes: 2048, allowed_hosts: [Shop.example, "[::1]:8080"],
  allowed_origins: ["https://shop.example"], gzip_min_bytes: 100, header_max_bytes: 4096,
  header_fields_max: 20, connections_max: 7, connections_per_address_max: 3, bodies_max_bytes: 3145728,
  answers_max_bytes: 2097152, idle_timeout_ms: 1500, request_timeout_ms: 700, shutdown_grace_ms: 800}
auth: {api_keys: [{principal: orders, key_file: orders.key, scopes: [leases, writes]},
  {principal: admin, scopes: [leases, writes, history, operate, bare_tokens],
   key_sha256: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}
lease: {default_ttl_ms: 5000, max_ttl_ms: 20000, max_wait_ms: 0, max_renewals: 3, max_hold_ms: 50000, waiters_max: 11,
  signing_key_file: signing.key, verification_key_files: [other.key]}
redis: {node_timeout_ms: 150, node_dead_after_ms: 900, node_queue_max: 120, nodes: [
  {name: a, host: 10.0.0.1, username: gateway, password_file: redis.password},
  {name: b, host: 10.0.0.2, port: 6400, password_env: FENCEGATE_TEST_PASSWORD},
  {name: c, host: 10.0.0.3}]}
postgres: {conninfo: host=db dbname=shop, connections: 2, queue_max: 13, rows_max: 17, statement_timeout_ms: 3000,
  lock_timeout_ms: 1000, guard_check_interval_ms: 900}
writes: {idempotency_ttl_ms: 60000}
audit: {buffer_max: 5000, on_full: drop, digest_key_file: digest.key, digest_public_key_files: [digest.pub],
  digest_interval_ms: 2000, digest_file: digests.ndjson, record_reads: true}
history: {keep_days: 90}
limits:
  principals: [{principal: orders, leases_max: 5},
    {principal: reports, requests_per_second: 9, requests_burst: 10, waiters_max: 2, streams_max: 1}]
  address: {requests_per_second: 30, requests_burst: 40, failed_authentications_per_minute: 50}
  principal: {requests_per_second: 1, requests_burst: 2, leases_max: 3, waiters_max: 4, streams_max: 6}
log: {level: debug, json: false, core_dumps: true}
)",
                                 faults, exposure_rule::allow);
    unsetenv("FENCEGATE_TEST_PASSWORD");
    ASSERT_EQ(faults, config_faults{});
    EXPECT_EQ(cfg.protocol.cell, 7);
    EXPECT_EQ(cfg.http.address, "0.0.0.0");
    EXPECT_EQ(cfg.http.port, 0);
    EXPECT_EQ(cfg.http.threads, 3U);
    EXPECT_EQ(cfg.http.body_max_bytes, 2048U);
    EXPECT_EQ(cfg.http.header_max_bytes, 4096U);
    EXPECT_EQ(cfg.http.allowed_hosts, (std::vector<authority>{{"shop.example", std::nullopt}, {"::1", 8080}}));
    EXPECT_EQ(cfg.http.allowed_origins, std::vector<std::string>{"https://shop.example"});
    EXPECT_EQ(cfg.http.gzip_min_bytes, 100U);
    EXPECT_EQ(cfg.http.header_fields_max, 20U);
    EXPECT_EQ(cfg.http.connections_per_address_max, 3U);
    EXPECT_EQ(cfg.http.bodies_max_bytes, 3U << 20U);
    EXPECT_EQ(cfg.http.answers_max_bytes, 2U << 20U);
    EXPECT_EQ(cfg.http.connections_max, 7U);
    EXPECT_EQ(cfg.http.idle_timeout, 1500ms);
    EXPECT_EQ(cfg.http.request_timeout, 700ms);
    EXPECT_EQ(cfg.http.shutdown_grace, 800ms);
    ASSERT_EQ(cfg.auth.api_keys.size(), 2U);
    EXPECT_EQ(cfg.auth.api_keys[0].key_sha256, sha256_hex("a-long-random-key-of-orders"));
    EXPECT_EQ(cfg.auth.api_keys[0].rights.scopes, (std::set<scope>{scope::leases, scope::writes}));
    EXPECT_EQ(cfg.auth.api_keys[1].rights.scopes.size(), 5U);
    EXPECT_EQ(cfg.protocol.default_ttl, 5s);
    EXPECT_EQ(cfg.protocol.max_ttl, 20s);
    EXPECT_EQ(cfg.protocol.max_wait, 0ms);
    EXPECT_EQ(cfg.protocol.max_renewals, 3U);
    EXPECT_EQ(cfg.protocol.max_hold, 50s);
    EXPECT_EQ(cfg.protocol.waiters_max, 11U);
    EXPECT_EQ(cfg.protocol.node_timeout, 150ms);
    EXPECT_EQ(cfg.protocol.node_dead_after, 900ms);
    EXPECT_EQ(cfg.protocol.node_queue_max, 120U);
    ASSERT_EQ(cfg.protocol.nodes.size(), 3U);
    EXPECT_EQ(cfg.protocol.nodes[0].username, "gateway");
    EXPECT_EQ(cfg.protocol.nodes[0].password_file, here.file("redis.password"));
    EXPECT_EQ(cfg.protocol.nodes[1].password, "from-environment");
    EXPECT_EQ(cfg.protocol.nodes[2].port, 6379);
    EXPECT_EQ(cfg.postgres.conninfo, "host=db dbname=shop");
    EXPECT_EQ(cfg.postgres.connections, 2U);
    EXPECT_EQ(cfg.postgres.queue_max, 13U);
    EXPECT_EQ(cfg.postgres.rows_max, 17U);
    EXPECT_EQ(cfg.postgres.statement_timeout, 3s);
    EXPECT_EQ(cfg.postgres.lock_timeout, 1s);
    EXPECT_EQ(cfg.postgres.guard_check_interval, 900ms);
    EXPECT_EQ(cfg.writes.idempotency_ttl, 60s);
    const std::string digests = here.file("digests.ndjson");
    EXPECT_EQ(cfg.audit, (audit_config{5000, on_full::drop, digest_key, {digest_public_key}, 2s, digests, true}));
    EXPECT_EQ(cfg.history.keep_days, 90U);
    EXPECT_EQ(cfg.limits.address, (address_limits{{30, 40}, 50}));
    EXPECT_EQ(cfg.limits.principal, (principal_limits{{1, 2}, 3, 4, 6}));
    ASSERT_EQ(cfg.limits.principals.size(), 2U);
    EXPECT_EQ(cfg.limits.principals.at("orders"), (principal_limits{{1, 2}, 5, 4, 6})) << "the others of `principal`";
    EXPECT_EQ(cfg.limits.principals.at("reports"), (principal_limits{{9, 10}, 3, 2, 1}));
    EXPECT_EQ(cfg.log.level, "debug");
    EXPECT_FALSE(cfg.log.json);
    EXPECT_TRUE(cfg.log.core_dumps);
    EXPECT_EQ(cfg.lease.verification_keys, std::vector{std::string(32, 'o')});
}

/// A file and the only fault that it has.
struct faulty {
    std::string yaml;
    std::string fault;
};

class config_fault : public ::testing::TestWithParam<faulty> {};

TEST_P(config_fault, is_named_by_its_path) {
    folder here;
    here.write("short", "tiny");
    here.write("empty", "\n");
    const auto faults = here.faults_of(GetParam().yaml);
    EXPECT_EQ(faults, config_faults{GetParam().fault});
}

std::string with_http(const std::string& text) {
    return least + "http: {" + text + "}\n";
}
std::string with_key(const std::string& text) {
    return least + "auth: {api_keys: [{" + text + "}]}\n";
}
std::string with_node(const std::string& text) {
    return postgres + lease + "redis: {nodes: [{name: a, host: h, " + text + "}]}\n";
}

const std::string good_hash(64, 'b');

INSTANTIATE_TEST_SUITE_P(
    table, config_fault,
    ::testing::Values(
        faulty{least + "cell: 65536\n", "cell: 65536 is not between 0 and 65535"},
        faulty{with_http("port: 70000"), "http.port: 70000 is not between 0 and 65535"},
        faulty{with_http("port: -1"), "http.port: -1 is not between 0 and 65535"},
        faulty{with_http("port: 99999999999999999999"), "http.port: 99999999999999999999 is not between 0 and 65535"},
        faulty{with_http("port: 80a"), "http.port: \"80a\" is not an integer between 0 and 65535"},
        faulty{with_http("port: "), "http.port: has no value"},
        faulty{with_http("port: [1]"), "http.port: must be a single value"},
        faulty{with_http("threads: 0"), "http.threads: 0 is not between 1 and 64"},
        faulty{with_http("threads: 65"), "http.threads: 65 is not between 1 and 64"},
        faulty{with_http("body_max_bytes: 1023"), "http.body_max_bytes: 1023 is not between 1024 and 67108864"},
        faulty{with_http("bodies_max_bytes: 1048575"),
               "http.bodies_max_bytes: 1048575 is not between 1048576 and 68719476736"},
        faulty{
            with_http("body_max_bytes: 2000000, bodies_max_bytes: 3999999"),
            "http.bodies_max_bytes: has to be at least twice http.body_max_bytes: one caller's share of it has to hold "
            "the largest body"},
        faulty{with_http("idle_timeout_ms: 999"), "http.idle_timeout_ms: 999 is not between 1000 and 3600000"},
        faulty{with_http("shutdown_grace_ms: -1"), "http.shutdown_grace_ms: -1 is not between 0 and 300000"},
        faulty{with_http("shutdown_grace_ms: 300001"), "http.shutdown_grace_ms: 300001 is not between 0 and 300000"},
        faulty{with_http("idle_timeout_ms: 5s"),
               "http.idle_timeout_ms: \"5s\" is not an integer between 1000 and 3600000"},
        faulty{with_http("prot: 80"), "http.prot: unknown key; did you mean port?"},
        faulty{with_http("idle_timeout: 5000"), "http.idle_timeout: unknown key; did you mean idle_timeout_ms?"},
        faulty{with_http("port: 1, port: 2"), "http.port: is given more than once (line 4)"},
        faulty{with_http("address: localhost"), "http.address: \"localhost\" is not an IPv4 or IPv6 address"},
        faulty{with_http("address: 0.0.0.0"),
               "http.address: 0.0.0.0 is not a loopback address, which it must be without credentials in auth and "
               "without http.tls; --insecure allows it behind a proxy"},
        faulty{with_http("address: \"::\""),
               "http.address: :: is not a loopback address, which it must be without credentials in auth and "
               "without http.tls; --insecure allows it behind a proxy"},
        faulty{least + "http: 8080\n", "http: must be a mapping of keys to values"},
        faulty{least + "htpp: {}\n", "htpp: unknown key; did you mean http?"},
        faulty{least + "quux: {}\n",
               "quux: unknown key; known here: cell, http, auth, lease, redis, postgres, writes, audit, history, "
               "limits, log"},
        faulty{redis + lease, "postgres: is missing"},
        faulty{redis + lease + "postgres: {}\n", "postgres.conninfo: is missing"},
        faulty{postgres + lease + "redis: {nodes: a}\n", "redis.nodes: must be a list"},
        faulty{least + "limits: {principals: [{principal: a, requests_burst: 5}]}\n",
               "limits.principals[0].requests_burst: has no effect while requests_per_second is 0"},
        faulty{least + "limits: {address: {requests_burst: 5}}\n",
               "limits.address.requests_burst: has no effect while requests_per_second is 0"},
        faulty{least + "limits: {principal: {leases_max: 1000001}}\n",
               "limits.principal.leases_max: 1000001 is not between 0 and 1000000"},
        faulty{least + "limits: {principals: [{leases_max: 1}]}\n", "limits.principals[0].principal: is missing"},
        faulty{least + "limits: {principals: [{principal: a, waiters: 1}]}\n",
               "limits.principals[0].waiters: unknown key; did you mean waiters_max?"},
        faulty{least + "limits: {principals: [{principal: a}, {principal: a}]}\n",
               "limits.principals[1].principal: an earlier entry has the limits of this principal"},
        faulty{with_node("port: 70000"), "redis.nodes[0].port: 70000 is not between 1 and 65535"},
        faulty{with_node("pasword_env: X"), "redis.nodes[0].pasword_env: unknown key; did you mean password_env?"},
        faulty{with_node("password_env: FENCEGATE_TEST_UNSET"),
               "redis.nodes[0].password_env: the environment variable FENCEGATE_TEST_UNSET is not set"},
        faulty{with_node("username: u"), "redis.nodes[0].username: is given without a password"},
        faulty{with_node("username: u, password_env: FENCEGATE_TEST_UNSET"),
               "redis.nodes[0].password_env: the environment variable FENCEGATE_TEST_UNSET is not set"},
        faulty{redis + lease + "postgres: {conninfo: host=h prot=1}\n",
               "postgres.conninfo: invalid connection option \"prot\"; did you mean port?"},
        faulty{redis + postgres + "lease: {signing_key_file: signing.key, max_renewals: 1000000000}\n",
               "lease.max_renewals: 1000000000 is not between 0 and 999999999"},
        faulty{redis + postgres + "lease: {signing_key_file: signing.key, default_ttl_ms: 99}\n",
               "lease.default_ttl_ms: 99 is not between 100 and 3600000"},
        faulty{redis + lease + "postgres: {conninfo: host=x, statement_timeout_ms: 500}\n",
               "postgres.lock_timeout_ms: is above statement_timeout_ms, which would end the wait first"},
        faulty{redis + lease + "postgres: {conninfo: host=x, guard_check_interval_ms: 99}\n",
               "postgres.guard_check_interval_ms: 99 is not between 100 and 3600000"},
        faulty{least + "history: {keep_days: 6}\n", "history.keep_days: is 6; it has to be 0 (for ever) or at least 7"},
        faulty{least + "writes: {idempotency_ttl_ms: 999}\n",
               "writes.idempotency_ttl_ms: 999 is not between 1000 and 2592000000"},
        faulty{least + "audit: {on_full: dorp}\n",
               "audit.on_full: \"dorp\" is none of refuse, drop; did you mean drop?"},
        faulty{least + "log: {level: loud}\n", "log.level: \"loud\" is none of trace, debug, info, warn, error"},
        faulty{least + "log: {json: maybe}\n", "log.json: \"maybe\" is neither true nor false"},
        faulty{with_key("principal: p, scopes: [leases]"), "auth.api_keys[0]: needs one of key_sha256 and key_file"},
        faulty{with_key("principal: p, scopes: [leases], key_sha256: abc"),
               "auth.api_keys[0].key_sha256: must be 64 lower-case hexadecimal digits"},
        faulty{with_key("principal: p, scopes: [leases], key_file: short"),
               "auth.api_keys[0].key_file: the key in it is shorter than 16 bytes"},
        faulty{with_key("principal: p, scopes: [lease], key_sha256: " + good_hash),
               "auth.api_keys[0].scopes[0]: \"lease\" is none of leases, writes, history, operate, bare_tokens; did "
               "you mean leases?"},
        faulty{with_key("principal: p, scopes: [], key_sha256: " + good_hash),
               "auth.api_keys[0].scopes: must name at least one scope, unless there are prefixes"},
        faulty{with_key("scopes: [leases], key_sha256: " + good_hash), "auth.api_keys[0].principal: is missing"},
        faulty{with_key("principal: p, scopes: [leases], key_sha256: " + good_hash +
                        "}, {principal: q, scopes: [writes], key_sha256: " + good_hash),
               "auth.api_keys[1]: has the key of p again"}));

TEST(config_load, all_faults_are_reported_at_once) {
    folder here;
    const auto faults = here.faults_of(R"(
http: {port: 70000, threads: none}
redis:
  nodes:
    - {name: a, host: h}
    - {name: b, host: h, port: 6380}
    - {name: c, host: h, port: 70000}
log: {levl: info}
)");
    const config_faults expected{
        "http.port: 70000 is not between 0 and 65535",
        "http.threads: \"none\" is not an integer between 1 and 64",
        "redis.nodes[2].port: 70000 is not between 1 and 65535",
        "log.levl: unknown key; did you mean level?",
        "postgres: is missing",
        "lease.signing_key_file: is missing, and the environment variable FENCEGATE_SIGNING_KEY is not set",
    };
    EXPECT_EQ(faults, expected);
}

TEST(config_load, protocol_fault_named_by_configuration_path) {
    folder here;
    const config_faults of_list_and_entry{"redis.nodes: needs an odd number of nodes, 1 to 9",
                                          "redis.nodes[1].name: is the name of nodes[0] too"};
    EXPECT_EQ(here.faults_of(postgres + lease + "redis: {nodes: [{name: a, host: h}, {name: a, host: i}]}\n"),
              of_list_and_entry);

    const auto hold = here.faults_of(redis + postgres + "lease: {signing_key_file: signing.key, max_hold_ms: 1000}\n");
    ASSERT_EQ(hold.size(), 1U);
    EXPECT_TRUE(hold[0].starts_with("lease.max_hold_ms: ")) << hold[0];
}

TEST(config_load, syntax_error_names_its_line) {
    folder here;
    const std::string fault =
        here.file("gateway.yaml").string() + ":3: is not valid YAML: end of sequence flow not found";
    EXPECT_EQ(here.faults_of("http:\n  port: [1\nlog: {}\n"), config_faults{fault});
}

TEST(config_load, unreadable_file_is_a_fault) {
    folder here;
    config_faults faults;
    load_config(here.file("absent.yaml"), faults);
    EXPECT_EQ(faults,
              config_faults{"cannot read " + here.file("absent.yaml").string() + ": No such file or directory"});
    faults.clear();
    load_config(here.file(""), faults);
    EXPECT_EQ(faults.size(), 1U);
}

TEST(config_load, empty_file_lacks_keys_without_default) {
    folder here;
    const auto faults = here.faults_of("");
    for (const char* fault : {"redis: is missing", "postgres: is missing"})
        EXPECT_EQ(std::ranges::count(faults, fault), 1);
}

TEST(config_load, several_documents_are_refused) {
    folder here;
    const std::string fault = here.file("gateway.yaml").string() + ": holds more than one YAML document";
    EXPECT_EQ(here.faults_of(least + "---\n" + least), config_faults{fault});
    EXPECT_EQ(here.faults_of(",: x\n").front(), fault);  // yaml-cpp finds documents without end
}

TEST(config_load, signing_key_in_file_and_environment_file_wins) {
    folder here;
    setenv("FENCEGATE_SIGNING_KEY", std::string(40, 'e').c_str(), 1);
    config_faults faults;
    EXPECT_EQ(here.load(redis + postgres, faults).lease.signing_key, std::string(40, 'e'));
    EXPECT_EQ(faults, config_faults{});
    EXPECT_EQ(here.load(least, faults).lease.signing_key, std::string(64, 'a'));
    setenv("FENCEGATE_SIGNING_KEY", "short", 1);
    EXPECT_EQ(here.faults_of(redis + postgres),
              config_faults{"FENCEGATE_SIGNING_KEY: the key has 5 bytes; it needs at least 32"});
    unsetenv("FENCEGATE_SIGNING_KEY");
}

TEST(config_load, signing_key_is_overwritten_in_the_environment) {
    folder here;
    const std::string key(40, 'e');
    setenv("FENCEGATE_SIGNING_KEY", key.c_str(), 1);
    config_faults faults;
    here.load(least, faults);
    EXPECT_STREQ(getenv("FENCEGATE_SIGNING_KEY"), "") << "also where a file has the key that counts";
    EXPECT_EQ(here.load(redis + postgres, faults).lease.signing_key, key) << "kept for a reload";
    setenv("FENCEGATE_SIGNING_KEY", std::string(40, 'f').c_str(), 1);
    EXPECT_EQ(here.load(redis + postgres, faults).lease.signing_key, std::string(40, 'f'));
    unsetenv("FENCEGATE_SIGNING_KEY");
    EXPECT_NE(here.faults_of(redis + postgres), config_faults{});
}

TEST(config_load, verification_keys_are_named_by_position_in_faults) {
    folder here;
    here.write("short", "tiny");
    here.write("other.key", std::string(32, 'o'));
    const auto with_files = [&](const std::string& files) {
        return here.faults_of(redis + postgres +
                              "lease: {signing_key_file: signing.key, verification_key_files: " + files + "}\n");
    };
    EXPECT_EQ(with_files("[]"), config_faults{});
    EXPECT_EQ(with_files("[other.key, short]"),
              config_faults{"lease.verification_key_files[1]: the key has 4 bytes; it needs at least 32"});
    EXPECT_EQ(with_files("[signing.key]"),
              config_faults{"lease.verification_key_files[0]: is the key that signs; name the others that count"});
    EXPECT_EQ(with_files("[other.key, other.key]"), config_faults{"lease.verification_key_files[1]: is named twice"});
    EXPECT_EQ(with_files("[a, b, c, d, e]").back(), "lease.verification_key_files: has more than 4 entries");
    const auto missing = with_files("[nowhere]");
    ASSERT_EQ(missing.size(), 1U);
    EXPECT_TRUE(missing[0].starts_with("lease.verification_key_files[0]: cannot read ")) << missing[0];
}

TEST(config_load, fault_contains_no_secret) {
    folder here;
    here.write("short", "tiny-secret");
    const std::string yaml =
        "redis: {nodes: [{name: a, host: h, password: hunter2}]}\n"
        "postgres: {conninfo: [host=db password=hunter3]}\n"
        "lease: {signing_key_file: short}\n";
    for (const auto& fault : here.faults_of(yaml)) {
        EXPECT_EQ(fault.find("hunter"), std::string::npos) << fault;
        EXPECT_EQ(fault.find("tiny"), std::string::npos) << fault;
    }
}

TEST(config_load, example_file_has_every_default_and_is_valid) {
    folder here;
    here.write("redis.password", "secret");
    std::ifstream example(std::filesystem::path(FENCEGATE_SOURCE_DIR) / "config/fencegate.yaml");
    config_faults faults;
    const config cfg = here.load({std::istreambuf_iterator<char>(example), {}}, faults);
    ASSERT_EQ(faults, config_faults{});
    const config defaults;
    EXPECT_EQ(cfg.protocol.nodes.size(), 5U);
    EXPECT_EQ(cfg.http.port, defaults.http.port);
    EXPECT_EQ(cfg.http.threads, defaults.http.threads);
    EXPECT_EQ(cfg.http.body_max_bytes, defaults.http.body_max_bytes);
    EXPECT_EQ(cfg.http.header_max_bytes, defaults.http.header_max_bytes);
    EXPECT_EQ(cfg.http.connections_max, defaults.http.connections_max);
    EXPECT_EQ(cfg.http.idle_timeout, defaults.http.idle_timeout);
    EXPECT_EQ(cfg.http.request_timeout, defaults.http.request_timeout);
    EXPECT_EQ(cfg.http.shutdown_grace, defaults.http.shutdown_grace);
    EXPECT_EQ(cfg.protocol.default_ttl, defaults.protocol.default_ttl);
    EXPECT_EQ(cfg.protocol.max_ttl, defaults.protocol.max_ttl);
    EXPECT_EQ(cfg.protocol.max_wait, defaults.protocol.max_wait);
    EXPECT_EQ(cfg.protocol.max_renewals, defaults.protocol.max_renewals);
    EXPECT_EQ(cfg.protocol.max_hold, defaults.protocol.max_hold);
    EXPECT_EQ(cfg.protocol.waiters_max, defaults.protocol.waiters_max);
    EXPECT_EQ(cfg.protocol.node_timeout, defaults.protocol.node_timeout);
    EXPECT_EQ(cfg.protocol.node_dead_after, defaults.protocol.node_dead_after);
    EXPECT_EQ(cfg.protocol.node_queue_max, defaults.protocol.node_queue_max);
    EXPECT_EQ(cfg.postgres.connections, defaults.postgres.connections);
    EXPECT_EQ(cfg.postgres.queue_max, defaults.postgres.queue_max);
    EXPECT_EQ(cfg.postgres.rows_max, defaults.postgres.rows_max);
    EXPECT_EQ(cfg.postgres.statement_timeout, defaults.postgres.statement_timeout);
    EXPECT_EQ(cfg.postgres.lock_timeout, defaults.postgres.lock_timeout);
    EXPECT_EQ(cfg.postgres.guard_check_interval, defaults.postgres.guard_check_interval);
    EXPECT_EQ(cfg.writes.idempotency_ttl, defaults.writes.idempotency_ttl);
    EXPECT_EQ(cfg.audit, defaults.audit);
    EXPECT_EQ(cfg.log.level, defaults.log.level);
    EXPECT_EQ(cfg.log.json, defaults.log.json);
    EXPECT_EQ(cfg.log.core_dumps, defaults.log.core_dumps);
    EXPECT_EQ(cfg.limits, defaults.limits);
}

}  // namespace
}  // namespace fencegate
