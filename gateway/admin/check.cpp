#include <gateway/admin/commands.hpp>

#include <gateway/config/file_limit.hpp>
#include <gateway/config/pem.hpp>
#include <gateway/config/sections.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/http/identity/token_authenticator.hpp>
#include <gateway/http/transport/tls_channel.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/schema/cluster.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/hmac_sha256.hpp>
#include <lockcore/probe.hpp>

#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

namespace fencegate::admin {
namespace {

/// Prints the results and remembers whether there was a fault.
class check_report {
  public:
    void add_good(const std::string& subject, const std::string& detail) { print("ok    ", subject, detail); }
    void add_warning(const std::string& subject, const std::string& detail) {
        print("ok    ", subject, "WARNING: " + detail);
    }
    void add_fault(const std::string& subject, const std::string& detail) {
        print("FAULT ", subject, detail);
        has_fault_ = true;
    }
    void add(bool good, const std::string& subject, const std::string& detail) {
        if (good) return add_good(subject, detail);
        add_fault(subject, detail);
    }
    bool has_fault() const { return has_fault_; }

  private:
    static void print(const char* mark, const std::string& subject, const std::string& detail) {
        std::cout << mark << subject << ": " << runtime::make_printable(detail) << "\n";
    }

    bool has_fault_ = false;
};

/// Compares the cluster's row with the configuration. Does not write the row: the first gateway that joins does.
void check_cluster(pg::session& database, const config& cfg, check_report& report) {
    const auto rows = database.exec(
        "select array_to_string(node_names, ', ') as node_names, quorum, max_ttl_ms, buckets, epoch, answer_bound_ms, "
        "cell from fencing.cluster",
        {});
    if (rows.empty()) {
        report.add_good(
            "cluster",
            "no gateway has joined yet; the first one records cell, nodes, lease.max_ttl_ms and lease.answer_bound_ms");
        return;
    }
    const auto stored = [&rows](const char* column) { return std::string(rows[0][column].c_str()); };
    std::vector<std::string> names;
    for (const auto& node : cfg.protocol.nodes)
        names.push_back(node.name);
    std::sort(names.begin(), names.end());
    struct setting {
        std::string name, in_cluster, in_config;
    };
    const std::string cluster_bound = stored("answer_bound_ms");
    const std::string own_bound = std::to_string(cfg.protocol.answer_bound.count());
    const std::string cell = std::to_string(cfg.protocol.cell);
    const std::vector<setting> settings{
        {"cell", stored("cell"), cell},
        {"redis.nodes", stored("node_names"), fmt::format("{}", fmt::join(names, ", "))},
        {"quorum", stored("quorum"), std::to_string(lockcore::majority_of(names.size()))},
        {"lease.max_ttl_ms", stored("max_ttl_ms"), std::to_string(cfg.protocol.max_ttl.count())},
        {"buckets", stored("buckets"), std::to_string(lockcore::buckets)},
        // A gateway without a configured bound uses the cluster's.
        {"lease.answer_bound_ms", cluster_bound, cfg.lease.answer_bound_is_given ? own_bound : cluster_bound},
    };
    bool agrees = true;
    for (const auto& each : settings) {
        if (each.in_cluster == each.in_config) continue;
        agrees = false;
        report.add_fault("cluster", each.name + " differs: the cluster has " + each.in_cluster +
                                        ", this configuration " + each.in_config);
    }
    if (agrees)
        report.add_good("cluster", "agrees with this configuration, cell " + cell + ", epoch " + stored("epoch"));
    const std::chrono::milliseconds bound{std::stoll(cluster_bound)};
    if (const auto warning = find_timeout_warning(cfg.protocol, bound)) report.add_warning("cluster", *warning);
}

void check_guard(pg::session& database, check_report& report) {
    const auto state = pg::read_guard_state(database);
    const auto& faults = state.at("faults").as_array();
    const auto& tables = state.at("tables").as_array();
    for (const auto& fault : faults)
        report.add_fault("guard", std::string(fault.as_string()));
    for (const auto& each : tables) {
        const auto& table = each.as_object();
        if (table.at("state") == "enforced") continue;
        if (table.at("state") == "open") {
            report.add_fault("guard", describe_table(table));
        } else {
            report.add_warning("guard", describe_table(table));
        }
    }
    if (faults.empty() && count_tables(state, "enforced") == tables.size())
        report.add_good("guard", "every check is in place, tables: " + summarize_tables(state));
    for (const auto& limit : state.at("limits").as_array())
        report.add_warning("guard", "this installation can't notice everything: " + std::string(limit.as_string()));
}

/// Makes the database connect as the recorder does, because only that shows that it can. An installation without a
/// superuser may be unable to have one.
void check_recorder(pg::session& database, check_report& report) {
    const auto found = database.exec("select fencing.recorder_fault()", {});
    if (found[0][0].is_null()) {
        report.add_good("recorder", "refusals of direct SQL get into the history");
        return;
    }
    const auto fault = std::string("refusals of direct SQL are not recorded: ") + found[0][0].c_str();
    if (pg::has_recorder(pg::read_guard_state(database)))
        report.add_fault("recorder", fault);
    else
        report.add_warning("recorder", fault);
}

/// Checks that lease_ids of this gateway are proofs, if the database checks any.
void check_proof_keys(pg::session& database, const config& cfg, check_report& report) {
    const std::string signing = lockcore::hmac_sha256::id_of(cfg.lease.signing_key);
    const auto rows = database.exec(
        "select id, id || case name when id then '' else ' (' || name || ')' end || case when expires_at <= now() then "
        "' expired' else '' end, expires_at <= now() is not true from fencing.proof_keys()",
        {});
    std::vector<std::string> names;
    bool known = rows.empty();
    for (const auto& row : rows) {
        names.emplace_back(row[1].c_str());
        known = known || (row[0].c_str() == signing && row[2].as<bool>());
    }
    report.add(known, "proof keys",
               rows.empty() ? "none; fencing.enter accepts no lease_id"
                            : fmt::format("PostgreSQL has {}", fmt::join(names, ", ")) +
                                  (known ? "" : "; it refuses proofs that this gateway signs with " + signing));
}

/// Warns if a failover can lose writes that were answered.
void check_standby(pg::session& database, check_report& report) {
    const auto found = database.exec(
        "select current_setting('synchronous_standby_names') <> '', current_setting('synchronous_commit') in "
        "('off', 'local')",
        {});
    const bool synchronous = found[0][0].as<bool>() && !found[0][1].as<bool>();
    if (synchronous) return report.add_good("standby", "commits wait for a synchronous standby");
    report.add_warning("standby",
                       "no synchronous standby: a failover of PostgreSQL can lose writes that were answered "
                       "(docs/operations/failover.md)");
}

void check_storage(pg::session& database, check_report& report) {
    const pg::storage_state state = pg::find_storage_state(database);
    report.add(state.current, "storage generation",
               state.current ? state.live
                             : "PostgreSQL is " + state.live + ", the fences were set in " +
                                   (state.stored.empty() ? "an unknown one" : state.stored) +
                                   ": nothing is let in until a gateway has set the floor");
}

void check_postgres(const config& cfg, check_report& report) {
    try {
        pg::session database(cfg.postgres);
        database.configure(cfg.postgres);
        if (const auto direct = pg::check_direct(database); !direct) {
            report.add_fault("postgres", direct.error().detail);
            return;
        }
        const auto server = database.exec(
            "select current_setting('server_version'), current_database(), current_user::text, "
            "current_setting('transaction_read_only') = 'on', exists (select from pg_roles where rolname = "
            "current_user and rolsuper)",
            {});
        const std::string name = std::string("PostgreSQL ") + server[0][0].c_str() + ", database " +
                                 server[0][1].c_str() + " as " + server[0][2].c_str();
        if (server[0][3].as<bool>()) {
            report.add_fault("postgres", name + "; " + pg::cause_of("25006") + pg::read_only_advice);
            return;
        }
        report.add_good("postgres", name + (server[0][4].as<bool>()
                                                ? "; WARNING: a superuser, whom no privilege and no row security "
                                                  "limits: use a role with fencing_gateway alone"
                                                : ""));
        if (const auto schema = pg::check_schema(database); !schema) {
            report.add_fault("schema", schema.error().detail);
            return;
        }
        const auto version = database.exec("select fencing.schema_version()", {});
        report.add_good("schema", std::string("version ") + version[0][0].c_str());
        check_cluster(database, cfg, report);
        check_guard(database, report);
        check_storage(database, report);
        check_standby(database, report);
        check_recorder(database, report);
        check_proof_keys(database, cfg, report);
    } catch (const pg::session_lost& e) {
        report.add_fault("postgres", e.what());
    } catch (const pg::statement_failed& e) {
        report.add_fault("postgres", e.what());
    }
}

void check_tls(const tls_config& tls, check_report& report) {
    const auto expired = find_expired_certificates(tls);
    for (const auto& fault : expired)
        report.add_fault("tls", fault);
    if (const auto made = http::tls_context::create(tls); !made) {
        report.add_fault("tls", made.error().detail);
    } else if (expired.empty()) {
        const auto chain = read_certificates(tls.certificates);
        report.add_good("tls", "the gateway's certificate is valid until " + expiry_of(*chain.front()));
    }
}

/// Requests the keys of tokens, without which a gateway refuses every token and a reload with another jwks_url.
void check_token_keys(const jwt_config& jwt, check_report& report) {
    if (jwt.keys) return;
    std::string fault;
    const auto text = http::fetch_key_set(jwt, std::stop_token(), fault);
    std::vector<std::string> faults;
    const auto keys = text ? token_key_set::parse(*text, faults) : std::nullopt;
    if (text && !keys) fault = "the answer " + faults.back();
    report.add(keys.has_value(), "keys of tokens",
               jwt.jwks_url + (keys ? " has " + std::to_string(keys->keys().size()) : ": " + fault));
}

}  // namespace

int check(const config& cfg) {
    check_report report;
    const file_limit limit = raise_file_limit(cfg);
    report.add(limit.connections > 0, "connections", limit.describe(cfg));
    report.add_good("signing key", lockcore::hmac_sha256::id_of(cfg.lease.signing_key) + " signs lease ids");
    for (const std::string& key : cfg.lease.verification_keys)
        report.add_good("verification key", lockcore::hmac_sha256::id_of(key) + " is accepted too");
    for (const std::string& warning : cfg.warnings)
        report.add_warning("configuration", warning);
    if (cfg.tls) check_tls(*cfg.tls, report);
    if (cfg.auth.jwt) check_token_keys(*cfg.auth.jwt, report);
    if (const auto exposed = find_exposure_fault(cfg)) report.add_good("insecure", *exposed + ", or behind a proxy");
    const auto nodes = lockcore::probe_nodes(cfg.protocol);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const std::string path = nodes[i].ok ? "" : " (redis.nodes[" + std::to_string(i) + "])";
        report.add(nodes[i].ok, nodes[i].name + path, nodes[i].detail);
    }
    check_postgres(cfg, report);
    return report.has_fault() ? exit_unavailable : exit_ok;
}

}  // namespace fencegate::admin
