#include <gateway/pg/connection/pqxx_compat.hpp>
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
        // Where it could not be set up, this says what is missing for that; where it exists, it changes nothing.
        for (const auto* function : {"set_up_recorder", "recorder_fault"}) {
            const auto fault = channel.exec(std::string("select fencing.") + function + "()")[0][0];
            if (!fault.is_null()) return fault.c_str();
        }
        return {};
    } catch (const pqxx::broken_connection&) {
        return "the connection broke before it could be asked";
    } catch (const pqxx::failure& e) {
        return parse_server_error(e.what()).message;
    }
}

// Two steps of a migration, of which failures say more.
constexpr const char* gateway_role_step = "the role of the gateways";
constexpr const char* commit_step = "the commit";

/// Lets the role log in as a gateway. An existing role keeps its attributes and its password.
void grant_gateway_role(pqxx::nontransaction& channel, const std::string& role) {
    const std::string name = channel.quote_name(role);
    const std::string text = channel.quote(role);
    if (channel.exec("select from pg_catalog.pg_roles where rolname = " + text).empty())
        channel.exec("create role " + name + " login");
    channel.exec("grant fencing_gateway to " + name);
    const auto connects = channel.exec("select current_database(), has_database_privilege(" + text +
                                       ", current_database(), 'connect')")[0];
    if (!connects[1].as<bool>())
        channel.exec("grant connect on database " + channel.quote_name(connects[0].c_str()) + " to " + name);
}

}  // namespace

result<migration> migrate(const std::string& conninfo, const std::vector<std::pair<std::string, std::string>>& scripts,
                          const migration_extras& extras) {
    std::unique_ptr<compat::connection> connection;
    try {
        connection = std::make_unique<compat::connection>(add_connect_timeout(conninfo));
    } catch (const std::exception& e) {
        return unavailable("PostgreSQL can't be reached: " + describe_connect_error(e.what(), conninfo));
    }
    compat::forbid_reactivation(*connection);
    compat::make_verbose(*connection);
    std::string step = "the beginning";
    try {
        pqxx::nontransaction channel(*connection);
        channel.exec("begin; set local client_min_messages = warning");
        for (const auto& [name, sql] : scripts) {
            step = name;
            channel.exec(sql);
            spdlog::info("migrate: {} ran", name);
        }
        if (!extras.gateway_role.empty()) {
            step = gateway_role_step;
            grant_gateway_role(channel, extras.gateway_role);
        }
        if (!extras.proof_keys.empty()) {
            step = "the proof keys";
            compat::prepare(*connection, "add_proof_key", "select fencing.add_proof_key(decode($1::text, 'hex'))");
            for (const std::string& key : extras.proof_keys)
                compat::exec_prepared(channel, "add_proof_key", {lockcore::to_hex(std::as_bytes(std::span(key)))});
            channel.exec("select fencing.require_proof(true)");
        }
        step = "the version";
        migration done;
        done.version = channel.exec("select coalesce(fencing.schema_version(), 0)")[0][0].as<int>();
        step = commit_step;
        channel.exec("commit");
        // After the commit, because the recorder's own connection sees only what is committed.
        done.recorder_fault = find_recorder_fault(channel);
        return done;
    } catch (const pqxx::broken_connection&) {
        failure lost = unavailable("The connection to PostgreSQL broke in " + step + ".");
        lost.outcome_unknown = step == commit_step;
        return lost;
    } catch (const pqxx::failure& e) {
        const auto error = parse_server_error(e.what());
        std::string text = step + ": " + error.message + "; nothing was changed.";
        if (error.sqlstate == "42501") {
            if (!error.detail.empty()) text += " " + error.detail;
            text += " The role " + std::string(connection->username());
            text += step == gateway_role_step
                        ? " installs the schema, but can't make " + extras.gateway_role +
                              " a member of fencing_gateway. That needs ADMIN OPTION on fencing_gateway, which the "
                              "role that created it can give (grant fencing_gateway to ... with admin option), and "
                              "CREATEROLE if the role is new. Or leave out --gateway-role, and let that role or a "
                              "superuser grant fencing_gateway to it."
                        : " may not install the schema: give --conninfo of a superuser, or of the role that installed "
                          "it before, and the gateways' role by --gateway-role.";
        }
        failure refused = make_failure(errc::unprocessable, text);
        refused.facts["sqlstate"] = error.sqlstate;
        return refused;
    }
}

}  // namespace fencegate::pg
