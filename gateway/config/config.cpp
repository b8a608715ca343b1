#include <gateway/config/config.hpp>

#include <gateway/config/conninfo.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/config/reader.hpp>
#include <gateway/config/secrets.hpp>
#include <gateway/config/sections.hpp>

#include <arpa/inet.h>
#include <unistd.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <array>
#include <climits>
#include <optional>
#include <set>
#include <sstream>

namespace fencegate {
namespace {

using namespace config_reader;
using std::chrono::milliseconds;
using namespace std::chrono_literals;

constexpr std::size_t file_max_bytes = 1 << 20;
constexpr std::size_t allowed_origins_max = 100;
constexpr std::size_t allowed_hosts_max = 100;

read_value secret_variable(std::string& target) {
    return [&target](const YAML::Node& node, const std::string& path, fault_list& faults) {
        std::string name;
        if (!read_scalar(node, path, faults, name)) return;
        target = take_secret_variable(name);
        if (target.empty()) faults.add(path, "the environment variable " + name + " is not set");
    };
}

void read_allowed_host(const YAML::Node& node, const std::string& path, fault_list& faults,
                       std::vector<authority>& hosts) {
    std::string written;
    if (!read_scalar(node, path, faults, written)) return;
    if (auto named = parse_authority(written)) {
        hosts.push_back(std::move(*named));
    } else {
        faults.add(path, "has to be a host name or an IP address (IPv6 in brackets), with or without a port, no URL");
    }
}

void read_allowed_origin(const YAML::Node& node, const std::string& path, fault_list& faults,
                         std::vector<std::string>& origins) {
    std::string written;
    if (!read_scalar(node, path, faults, written)) return;
    if (is_origin(written)) {
        origins.push_back(std::move(written));
    } else {
        faults.add(
            path,
            "has to be an origin as browsers send it: http:// or https:// and a host in lower case, with its port "
            "unless that is the scheme's own, and nothing else; not * or null");
    }
}

/// Returns a reader for the file of a node's password, which is read again for each connection. What can't be read
/// again, such as a pipe, is read only here.
read_value password_file(lockcore::node_address& target, const std::filesystem::path& folder) {
    return [&target, folder](const YAML::Node& node, const std::string& path, fault_list& faults) {
        secret_file(target.password, folder)(node, path, faults);
        if (faults.covers(path) || !node.IsScalar()) return;
        const std::filesystem::path file = folder / node.Scalar();
        std::error_code ignored;
        if (!std::filesystem::is_regular_file(file, ignored)) return;
        target.password_file = file.string();
        overwrite_secret(target.password);
    };
}

void read_node(const YAML::Node& node, const std::string& path, fault_list& faults, const std::filesystem::path& folder,
               std::vector<lockcore::node_address>& nodes) {
    lockcore::node_address read;
    mapping({
        {"name", text(read.name), true},
        {"host", text(read.host), true},
        {"port", integer(read.port, 1, 65'535)},
        {"username", text(read.username)},
        {"password_file", password_file(read, folder)},
        {"password_env", secret_variable(read.password)},
    })(node, path, faults);
    if (node.IsMap() && node["password_file"] && node["password_env"]) {
        faults.add(path + ".password_env", "is given together with password_file; give only one of them");
    }
    // A password that could not be read is reported already.
    if (faults.covers(path + ".password_file") || faults.covers(path + ".password_env")) read.username.clear();
    nodes.push_back(std::move(read));  // also a faulty one, so that the number of nodes is checked correctly
}

/// Returns the reader of the whole file: all keys, with their bounds.
read_value whole_file(config& cfg, const std::filesystem::path& folder) {
    const auto nodes = [&cfg, folder](std::size_t, const YAML::Node& node, const std::string& path,
                                      fault_list& faults) {
        read_node(node, path, faults, folder, cfg.protocol.nodes);
    };
    const auto allowed_hosts = [&cfg](std::size_t i, const YAML::Node& node, const std::string& path,
                                      fault_list& faults) {
        if (i == allowed_hosts_max) faults.add("http.allowed_hosts", "has more than 100 entries");
        if (i < allowed_hosts_max) read_allowed_host(node, path, faults, cfg.http.allowed_hosts);
    };
    const auto allowed_origins = [&cfg](std::size_t i, const YAML::Node& node, const std::string& path,
                                        fault_list& faults) {
        if (i == allowed_origins_max) faults.add("http.allowed_origins", "has more than 100 entries");
        if (i < allowed_origins_max) read_allowed_origin(node, path, faults, cfg.http.allowed_origins);
    };
    return mapping({
        {"cell", integer(cfg.protocol.cell, 0, 65'535)},
        {"http", mapping({
                     {"address", text(cfg.http.address)},
                     {"port", integer(cfg.http.port, 0, 65'535)},
                     {"threads", integer(cfg.http.threads, 1, 64)},
                     reloadable("tls", tls_section(cfg.tls, folder)),
                     {"body_max_bytes", integer(cfg.http.body_max_bytes, 1 << 10, 64 << 20)},
                     reloadable("allowed_hosts", {cfg.http.allowed_hosts, list(allowed_hosts)}),
                     reloadable("allowed_origins", {cfg.http.allowed_origins, list(allowed_origins)}),
                     {"gzip_min_bytes", integer(cfg.http.gzip_min_bytes, 0, 64 << 20)},
                     {"header_max_bytes", integer(cfg.http.header_max_bytes, 1 << 10, 1 << 20)},
                     {"header_fields_max", integer(cfg.http.header_fields_max, 16, 10'000)},
                     {"connections_max", integer(cfg.http.connections_max, 1, 1'000'000)},
                     {"connections_per_address_max", integer(cfg.http.connections_per_address_max, 0, 1'000'000)},
                     {"bodies_max_bytes", integer(cfg.http.bodies_max_bytes, 1 << 20, std::int64_t{64} << 30)},
                     {"answers_max_bytes", integer(cfg.http.answers_max_bytes, 1 << 20, std::int64_t{64} << 30)},
                     {"idle_timeout_ms", duration(cfg.http.idle_timeout, 1s, 1h)},
                     {"request_timeout_ms", duration(cfg.http.request_timeout, 100ms, 10min)},
                     {"shutdown_grace_ms", duration(cfg.http.shutdown_grace, 0ms, 5min)},
                 })},
        {"auth", auth_section(cfg.auth, folder)},
        {"lease", mapping({
                      {"default_ttl_ms", duration(cfg.protocol.default_ttl, lockcore::ttl_min, 1h)},
                      {"max_ttl_ms", duration(cfg.protocol.max_ttl, lockcore::ttl_min, 1h)},
                      {"answer_bound_ms", duration(cfg.protocol.answer_bound, 1ms, 10s)},
                      {"max_wait_ms", duration(cfg.protocol.max_wait, 0ms, 1h)},
                      {"max_renewals", integer(cfg.protocol.max_renewals, 0, lockcore::renewals_counted)},
                      {"max_hold_ms", duration(cfg.protocol.max_hold, lockcore::ttl_min, 365 * 24h)},
                      {"handoff_max", integer(cfg.protocol.handoff_max, 0, 1'000)},
                      {"waiters_max", integer(cfg.protocol.waiters_max, 1, 10'000'000)},
                      {"leak_scan_interval_ms", duration(cfg.lease.leak_scan_interval, 0ms, 24h)},
                      reloadable("signing_key_file", secret_file(cfg.lease.signing_key, folder)),
                      reloadable("verification_key_files", verification_key_files(cfg.lease.verification_keys, folder)),
                  })},
        {"redis",
         mapping({
             {"nodes", {cfg.protocol.nodes, list(nodes)}, true},
             {"tls", node_tls_section(cfg.redis_tls, folder)},
             {"node_timeout_ms", duration(cfg.protocol.node_timeout, 1ms, 10s)},
             {"node_dead_after_ms", duration(cfg.protocol.node_dead_after, 1ms, 10min)},
             {"node_queue_max", integer(cfg.protocol.node_queue_max, 16, 10'000'000)},
         }),
         true},
        {"postgres",
         mapping({
             {"conninfo", text(cfg.postgres.conninfo), true},
             {"connections", integer(cfg.postgres.connections, 1, 64)},
             {"queue_max", integer(cfg.postgres.queue_max, 1, 1'000'000)},
             {"rows_max", integer(cfg.postgres.rows_max, 1, 100'000)},
             {"statement_timeout_ms", duration(cfg.postgres.statement_timeout, 100ms, 10min)},
             {"lock_timeout_ms", duration(cfg.postgres.lock_timeout, 10ms, 1min)},
             {"guard_check_interval_ms", duration(cfg.postgres.guard_check_interval, 100ms, 1h)},
         }),
         true},
        {"writes", mapping({{"idempotency_ttl_ms", duration(cfg.writes.idempotency_ttl, 1s, 30 * 24h)}})},
        {"audit",
         mapping({
             {"buffer_max", integer(cfg.audit.buffer_max, 1'000, 10'000'000)},
             {"on_full", choice<on_full>(cfg.audit.when_full, {{"refuse", on_full::refuse}, {"drop", on_full::drop}})},
             {"digest_key_file", secret_file(cfg.audit.digest_key, folder)},
             {"digest_public_key_files", public_key_files(cfg.audit.digest_public_keys, folder)},
             {"digest_interval_ms", duration(cfg.audit.digest_interval, 1s, 24h)},
             {"digest_file", text(cfg.audit.digest_file)},
             {"record_reads", boolean(cfg.audit.record_reads)},
         })},
        {"history", mapping({{"keep_days", integer(cfg.history.keep_days, 0, 36'500)}})},
        reloadable("limits", limits_section(cfg.limits)),
        {"log", mapping({
                    reloadable("level", choice<std::string>(cfg.log.level, {{"trace", "trace"},
                                                                            {"debug", "debug"},
                                                                            {"info", "info"},
                                                                            {"warn", "warn"},
                                                                            {"error", "error"}})),
                    {"json", boolean(cfg.log.json)},
                    {"core_dumps", boolean(cfg.log.core_dumps)},
                })},
    });
}

/// The kind of a listen address.
enum class address_kind { not_an_address, loopback, other };

address_kind kind_of_address(const std::string& text) {
    in_addr v4{};
    if (inet_pton(AF_INET, text.c_str(), &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127 ? address_kind::loopback : address_kind::other;
    }
    in6_addr v6{};
    if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) ? address_kind::loopback : address_kind::other;
    }
    return address_kind::not_an_address;
}

void check_address(const config& cfg, exposure_rule rule, fault_list& faults) {
    if (kind_of_address(cfg.http.address) == address_kind::not_an_address)
        faults.add("http.address", "\"" + cfg.http.address + "\" is not an IPv4 or IPv6 address");
    if (rule == exposure_rule::allow || faults.covers("auth") || faults.covers("http.tls")) return;
    if (const auto fault = find_exposure_fault(cfg))
        faults.add("http.address", *fault + "; --insecure allows it behind a proxy");
}

/// Checks the rules of the lock protocol, and names the file's paths in the faults.
void check_protocol(const lockcore::config& protocol, const read_value& file_keys, fault_list& faults) {
    std::set<std::string> paths;
    file_keys.for_each_key(file_keys,
                           [&paths](const std::string& path, const auto&, const auto&) { paths.insert(path); });
    for (const auto& fault : protocol.validate()) {
        const auto end = std::min(fault.find(": "), fault.size());
        const std::string name = fault.substr(0, std::min(fault.find_first_of("[."), end));
        std::string path = "lease." + name;
        for (const std::string& known : {"redis." + name, "redis." + name + "_ms", "lease." + name + "_ms"})
            if (paths.contains(known)) path = known;
        path += fault.substr(name.size(), end - name.size());
        if (!faults.covers(path)) faults.add(path, end < fault.size() ? fault.substr(end + 2) : "is not valid");
    }
}

/// Checks keep_days. fencing.keep_history refuses fewer days too, so that a gateway's role cannot delete recent events.
void check_history(const history_config& history, fault_list& faults) {
    if (history.keep_days >= 1 && history.keep_days < 7 && !faults.covers("history.keep_days"))
        faults.add("history.keep_days",
                   "is " + std::to_string(history.keep_days) + "; it has to be 0 (for ever) or at least 7");
}

/// Adds a fault for each key that is not of Ed25519, and for what needs audit.digest_key_file.
void check_digests(const audit_config& audit, config_reader::fault_list& faults) {
    const auto is_usable = [](const pkey_handle& key) { return key && EVP_PKEY_get_id(key.get()) == EVP_PKEY_ED25519; };
    if (faults.covers("audit.digest_key_file")) return;
    if (audit.digest_key.empty()) {
        if (!audit.digest_public_keys.empty())
            faults.add("audit.digest_public_key_files", "needs audit.digest_key_file");
        if (!audit.digest_file.empty()) faults.add("audit.digest_file", "needs audit.digest_key_file");
    } else if (!is_usable(read_private_key(audit.digest_key))) {
        faults.add("audit.digest_key_file", "has no readable private key of Ed25519 in PEM without a passphrase");
    }
    for (std::size_t i = 0; i < audit.digest_public_keys.size(); ++i) {
        const std::string path = "audit.digest_public_key_files[" + std::to_string(i) + "]";
        if (!faults.covers(path) && !is_usable(read_public_key(audit.digest_public_keys[i])))
            faults.add(path, "has no readable public key of Ed25519 in PEM");
    }
}

void check_bodies(const http_config& http, fault_list& faults) {
    if (http.bodies_max_bytes / 2 < http.body_max_bytes && !faults.covers("http.body_max_bytes") &&
        !faults.covers("http.bodies_max_bytes")) {
        faults.add("http.bodies_max_bytes",
                   "has to be at least twice http.body_max_bytes: one caller's share of it has "
                   "to hold the largest body");
    }
}

void check_postgres(const postgres_config& postgres, fault_list& faults) {
    if (!faults.covers("postgres.conninfo")) {
        auto fault = find_conninfo_fault(postgres.conninfo);
        if (!fault) fault = find_relative_file(postgres.conninfo);
        if (fault) faults.add("postgres.conninfo", *fault);
    }
    if (postgres.lock_timeout > postgres.statement_timeout && !faults.covers("postgres.statement_timeout_ms")) {
        faults.add("postgres.lock_timeout_ms", "is above statement_timeout_ms, which would end the wait first");
    }
}

/// Takes the events of a parser and keeps nothing.
class event_sink final : public YAML::EventHandler {
    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
    void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
    void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
    void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
    void OnMapEnd() override {}
};

/// Looks for a second document only: in some invalid texts yaml-cpp finds documents without end (LoadAll never
/// returns).
bool has_several_documents(const std::string& text) {
    std::istringstream input(text);
    YAML::Parser parser(input);
    event_sink sink;
    return parser.HandleNextDocument(sink) && parser.HandleNextDocument(sink);
}

}  // namespace

std::optional<std::string> find_exposure_fault(const config& cfg) {
    if (kind_of_address(cfg.http.address) != address_kind::other) return std::nullopt;
    const bool has_credentials = !cfg.auth.is_keyless();
    if (has_credentials && cfg.tls) return std::nullopt;
    std::string missing = has_credentials ? "" : "without credentials in auth";
    if (!cfg.tls) missing += has_credentials ? "without http.tls" : " and without http.tls";
    return cfg.http.address + " is not a loopback address, which it must be " + missing;
}

std::optional<std::string> find_timeout_warning(const lockcore::config& protocol, milliseconds answer_bound) {
    if (protocol.node_timeout <= answer_bound) return std::nullopt;
    return "redis.node_timeout_ms is " + std::to_string(protocol.node_timeout.count()) +
           ", above lease.answer_bound_ms of the cluster, " + std::to_string(answer_bound.count()) +
           ": an answer that takes longer than this counts for nothing, so the longer wait only delays attempts";
}

config load_config(const std::filesystem::path& file, config_faults& faults, exposure_rule rule) {
    config cfg;
    std::string fault;
    const auto text = read_text_file(file, file_max_bytes, fault);
    if (!text) {
        faults = {fault};
        return cfg;
    }
    fault_list found;
    try {
        if (has_several_documents(*text)) found.add(file.string(), "holds more than one YAML document");
        const YAML::Node root = YAML::Load(*text);
        cfg.protocol.answer_bound = 0ms;
        const read_value file_keys = whole_file(cfg, file.parent_path());
        file_keys(root, "", found);
        cfg.lease.answer_bound_is_given = cfg.protocol.answer_bound != 0ms;
        // The value for a new cluster: answers count for as long as a node is waited for.
        if (!cfg.lease.answer_bound_is_given)
            cfg.protocol.answer_bound = std::max(lockcore::config{}.answer_bound, cfg.protocol.node_timeout);
        for (lockcore::node_address& node : cfg.protocol.nodes)
            node.tls = cfg.redis_tls;
        check_address(cfg, rule, found);
        if (!cfg.auth.client_certificates.empty() && (!cfg.tls || cfg.tls->client_authorities.empty()) &&
            !found.covers("http.tls"))
            found.add("auth.client_certificates", "needs http.tls.client_ca_file, the authorities that are trusted");
        check_signing_keys(cfg.lease.signing_key, cfg.lease.verification_keys, found);
        check_digests(cfg.audit, found);
        if (!cfg.audit.digest_file.empty())
            cfg.audit.digest_file = (file.parent_path() / cfg.audit.digest_file).string();
        check_protocol(cfg.protocol, file_keys, found);
        check_bodies(cfg.http, found);
        check_postgres(cfg.postgres, found);
        check_history(cfg.history, found);
        if (!found.covers("postgres.conninfo") && has_password(cfg.postgres.conninfo))
            found.check_permissions("postgres.conninfo", file);
    } catch (const YAML::Exception& e) {
        found.add(file.string() + ":" + std::to_string(e.mark.line + 1), "is not valid YAML: " + e.msg);
    }
    faults = found.all();
    cfg.warnings = found.warnings();
    if (!cfg.protocol.nodes.empty() && cfg.protocol.nodes.size() < 3)
        cfg.warnings.push_back(
            "redis.nodes: with " + std::to_string(cfg.protocol.nodes.size()) +
            " nothing is granted while a node is down, and for up to lease.max_ttl_ms after it lost its memory; three "
            "nodes survive the loss of one, five that of two");
    return cfg;
}

std::vector<std::string> find_restart_only_changes(config running, config wanted) {
    for (config* each : {&running, &wanted}) {
        for (lockcore::node_address& node : each->protocol.nodes)
            node.tls = {};  // from redis.tls
        // Without the key in the file the value depends on redis.node_timeout_ms.
        if (!each->lease.answer_bound_is_given) each->protocol.answer_bound = 0ms;
    }
    std::vector<std::string> differing;
    const auto compare = [&differing](const std::string& path, const field& in_use, const field& value) {
        if (!in_use.is_reloadable && in_use.read.differs(value.read)) differing.push_back(path);
    };
    whole_file(running, {}).for_each_key(whole_file(wanted, {}), compare);
    return differing;
}

std::vector<std::string> adopt_reloadable(config& running, config wanted) {
    std::vector<std::string> differing;
    const auto adopt = [&differing](const std::string& path, const field& in_use, const field& value) {
        if (!in_use.is_reloadable || !in_use.read.differs(value.read)) return;
        in_use.read.assign(value.read);
        differing.push_back(path);
    };
    whole_file(running, {}).for_each_key(whole_file(wanted, {}), adopt);
    return differing;
}

std::string name_of_gateway(const http_config& cfg) {
    std::array<char, HOST_NAME_MAX + 1> host{};
    gethostname(host.data(), host.size() - 1);
    return host.data() + (":" + std::to_string(cfg.port));
}

}  // namespace fencegate
