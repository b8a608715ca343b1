#include <gateway/pg/connection/pqxx_compat.hpp>
#include <gateway/pg/connection/server_error.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/schema/migrate.hpp>

#include <lockcore/encoding.hpp>

#include <spdlog/spdlog.h>

#include <memory>
#include <span>

namespace fencegate::pg {
namespace {

/// Returns why refusals of direct SQL are not recorded; empty where they are. Does not throw for an error of
/// PostgreSQL, because the migration is committed.
std::string find_recorder_fault(pqxx::nontransaction& channel) {
    try {
        const auto fault = channel.exec("select fencing.recorder_fault()")[0][0];
        return fault.is_null() ? std::string() : fault.c_str();
    } catch (const pqxx::broken_connection&) {
        return "the connection broke before it could be asked";
    } catch (const pqxx::failure& e) {
        return parse_server_error(e.what()).message;
    }
}

}  // namespace

result<migration> migrate(const std::string& conninfo, const std::vector<std::pair<std::string, std::string>>& scripts,
                          const std::vector<std::string>& proof_keys) {
    std::unique_ptr<compat::connection> connection;
    try {
        connection = std::make_unique<compat::connection>(add_connect_timeout(conninfo));
    } catch (const std::exception& e) {
        return unavailable("PostgreSQL can't be reached: " + describe_connect_error(e.what(), conninfo));
    }
    compat::forbid_reactivation(*connection);
    compat::make_verbose(*connection);
    std::string current = "the beginning";
    try {
        pqxx::nontransaction channel(*connection);
        channel.exec("begin; set local client_min_messages = warning");
        for (const auto& [name, sql] : scripts) {
            current = name;
            channel.exec(sql);
            spdlog::info("migrate: {} ran", name);
        }
        if (!proof_keys.empty()) {
            current = "the proof keys";
            compat::prepare(*connection, "add_proof_key", "select fencing.add_proof_key(decode($1::text, 'hex'))");
            for (const std::string& key : proof_keys)
                compat::exec_prepared(channel, "add_proof_key", {lockcore::to_hex(std::as_bytes(std::span(key)))});
            channel.exec("select fencing.require_proof(true)");
        }
        current = "the version";
        migration done;
        done.version = channel.exec("select coalesce(fencing.schema_version(), 0)")[0][0].as<int>();
        current = "the commit";
        channel.exec("commit");
        // After the commit, because the recorder's own connection sees only what is committed.
        done.recorder_fault = find_recorder_fault(channel);
        return done;
    } catch (const pqxx::broken_connection&) {
        failure lost = unavailable("The connection to PostgreSQL broke in " + current + ".");
        lost.outcome_unknown = current == "the commit";
        return lost;
    } catch (const pqxx::failure& e) {
        const auto error = parse_server_error(e.what());
        failure refused = make_failure(errc::unprocessable, current + ": " + error.message + "; nothing was changed");
        refused.facts["sqlstate"] = error.sqlstate;
        return refused;
    }
}

}  // namespace fencegate::pg
