// The command line of fencegate: reads arguments and configuration, runs a command, and returns its exit code.
#include <gateway/admin/commands.hpp>
#include <gateway/app.hpp>
#include <gateway/bench/bench.hpp>
#include <gateway/cli/commands.hpp>
#include <gateway/config/conninfo.hpp>
#include <gateway/devstack/dev.hpp>
#include <gateway/devstack/ports.hpp>
#include <gateway/devstack/process.hpp>
#include <gateway/domain/exit_code.hpp>
#include <gateway/logging.hpp>
#include <gateway/runtime/text.hpp>

#include <lockcore/types.hpp>

#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace fencegate;

/// The longest name of a role; PostgreSQL cuts a longer one off.
constexpr std::size_t role_bytes_max = 63;

/// Reads the configuration. Out: empty after it printed the faults.
std::optional<config> read_config(const std::filesystem::path& file, exposure_rule rule) {
    config_faults faults;
    config cfg = load_config(file, faults, rule);
    if (faults.empty()) return cfg;
    std::cerr << file.string() << " has "
              << (faults.size() == 1 ? "a fault" : std::to_string(faults.size()) + " faults") << ":\n";
    for (const auto& fault : faults)
        std::cerr << "  " << runtime::make_printable(fault) << "\n";
    return std::nullopt;
}

struct arguments {
    std::string config_file;
    std::string conninfo;
    std::string reason;
    bool insecure = false;
    bool require_proof = false;
    admin::migrate_options migrate;
    admin::erase_options erase;
    devstack::options dev;
    admin::verify_options verify;
    std::string export_file;  ///< Of verify.
};

void add_conninfo(CLI::App& command, arguments& given, const std::string& description) {
    command.add_option("--conninfo", given.conninfo, description)->check([](const std::string& text) {
        return find_conninfo_fault(text).value_or("");
    });
}

void add_config(CLI::App& command, arguments& given, bool required) {
    auto* option =
        command.add_option("-c,--config", given.config_file, "YAML file; config/fencegate.yaml explains every key")
            ->type_name("FILE");
    if (required) option->required();
}

void add_insecure(CLI::App& command, arguments& given) {
    command.add_flag("--insecure", given.insecure,
                     "Allow an address other than loopback without TLS or credentials, behind a proxy that has both");
}

void describe_dev(CLI::App& command, devstack::options& wanted) {
    command.add_option("--data-dir", wanted.data_dir, "Folder of the stack; created if missing")
        ->type_name("DIR")
        ->capture_default_str();
    const auto add_endpoint = [&](const char* name, std::string& endpoint, const char* description) {
        command.add_option(name, endpoint, description)
            ->type_name("ADDR:PORT")
            ->capture_default_str()
            ->check([](const std::string& text) -> std::string {
                try {
                    devstack::parse_endpoint(text);
                    return {};
                } catch (const devstack::stack_error& e) {
                    return e.what();
                }
            });
    };
    add_endpoint("--http", wanted.http, "Address of the first gateway; port 0: any free port");
    add_endpoint("--postgres", wanted.postgres, "Address of PostgreSQL, for callers with a password; port 0: as above");
    command
        .add_option("--nodes", wanted.nodes, "Number of Redis nodes, odd; cannot change after the first start with DIR")
        ->capture_default_str()
        ->check(CLI::Range(1U, static_cast<unsigned>(lockcore::nodes_max)))
        ->check([](const std::string& text) -> std::string { return std::stoul(text) % 2 == 1 ? "" : "must be odd"; },
                "ODD");
    command.add_flag("--auth", wanted.auth,
                     "Create API keys admin, orders and auditor; without, every caller is `dev` with all scopes");
    command.add_option("--gateways", wanted.gateways, "Number of gateways, each with its own process and port")
        ->capture_default_str()
        ->check(CLI::Range(1U, devstack::gateways_max));
    command
        .add_option("--appendfsync", wanted.appendfsync,
                    "Setting of the Redis nodes; with always a restarted node votes again at once")
        ->capture_default_str()
        ->check(CLI::IsMember({"always", "everysec", "no"}));
    command.footer(
        "Example:\n  fencegate dev --data-dir /var/tmp/fencegate --auth --gateways 2\n"
        "DIR/stack.json says where everything is. Ctrl-C stops everything; the next start uses the same data.\n"
        "With FENCEGATE_DEV_SECRET in the environment, 8 to 64 letters and digits, keys and passwords are known\n"
        "beforehand: api-admin-SECRET, api-orders-SECRET, api-auditor-SECRET and postgres-postgres-SECRET.");
}

void describe_verify(CLI::App& command, arguments& given) {
    add_config(command, given, false);
    add_conninfo(command, given, "libpq connection string of a role that may read the history");
    admin::verify_options& wanted = given.verify;
    command.add_option("--from", wanted.from, "Only rows from this time on, in a format of PostgreSQL")
        ->type_name("TIME");
    command.add_option("--to", wanted.to, "Only rows before this time; default: the start of the command")
        ->type_name("TIME");
    command.add_option("--resource-prefix", wanted.resource_prefix, "Only resources whose name begins with this");
    command.add_option("--skew-ms", wanted.skew_ms, "Largest difference between the clocks of gateways")
        ->capture_default_str()
        ->check(CLI::Range(0, 3'600'000));
    command.add_flag("--allow-missing-grants", wanted.allow_missing_grants,
                     "Report writes whose lease_granted is missing, as after a gateway was killed, without failing");
    command.add_flag("--json", wanted.json,
                     "Print one JSON object, with up to 1,000 rows for each promise; the text has 6");
    auto* file = command
                     .add_option("--digests", wanted.digests.file,
                                 "Also compare the rows with these signed digests, one a line, and with the database's")
                     ->type_name("FILE");
    auto* keys = command
                     .add_option("--public-key", wanted.digests.public_keys,
                                 "A key of gateways that signed them, PEM; may be repeated")
                     ->type_name("FILE");
    file->needs(keys);
    auto* exported = command
                         .add_option("--export", given.export_file,
                                     "In place of all that: whether this export, made with proof=true, is whole and "
                                     "as a gateway signed it; needs no database")
                         ->type_name("FILE")
                         ->needs(keys);
    for (const CLI::Option* other : command.get_options()) {
        if (other != exported && other != keys && other->get_name() != "--json" && other->get_name() != "--help")
            exported->excludes(command.get_option(other->get_name()));
    }
    command.footer(
        "Exit codes: 0 proved, 1 broken, 2 could not run, 64 wrong arguments, 78 the configuration is faulty.\n"
        "Example:\n  fencegate verify --config fencegate.yaml --from '2026-11-01' --resource-prefix inventory/\n"
        "If old partitions were dropped, set --from to a day (lease.max_hold_ms) after the oldest row.");
}

int migrate(const arguments& given, const std::string& conninfo) {
    admin::migrate_options options = given.migrate;
    options.conninfo = conninfo;
    return admin::migrate(options);
}

int run(int argc, char** argv) {
    CLI::App app{"fencegate: leases with fencing tokens over Redis, and PostgreSQL writes that refuse a stale holder."};
    app.set_version_flag("--version", "fencegate " FENCEGATE_VERSION);
    app.require_subcommand(1);
    app.footer(
        "Exit codes: 0 done, 1 failed, 64 wrong arguments, 69 PostgreSQL, Redis or the gateway cannot be reached or is "
        "incompatible, 78 faulty configuration; verify, lock and elect have their own, which their --help lists.\n"
        "Example:\n  fencegate dev          runs a complete stack on this machine");
    arguments given;

    CLI::App* serve_command = app.add_subcommand("serve", "Run a gateway until SIGTERM");
    add_config(*serve_command, given, true);
    add_insecure(*serve_command, given);
    serve_command->footer(
        "SIGTERM stops it, SIGHUP reloads credentials, certificates, keys and limits of its configuration.\n"
        "Example:\n  fencegate serve --config fencegate.yaml");

    CLI::App* dev_command =
        app.add_subcommand("dev", "Run Redis nodes, PostgreSQL and gateways on this machine for development and tests");
    describe_dev(*dev_command, given.dev);

    CLI::App* migrate_command = app.add_subcommand("migrate", "Install or update the schema fencing in PostgreSQL");
    add_config(*migrate_command, given, false);
    add_conninfo(*migrate_command, given, "libpq connection string of a role that may create schemas and roles");
    migrate_command
        ->add_option("--gateway-role", given.migrate.extras.gateway_role,
                     "Role as which gateways log in (user of postgres.conninfo): created if missing, made a member of "
                     "fencing_gateway")
        ->type_name("NAME")
        ->check([](const std::string& name) -> std::string {
            return name.size() > role_bytes_max ? "is longer than " + std::to_string(role_bytes_max) + " bytes" : "";
        });
    migrate_command->add_flag("--with-example", given.migrate.with_example,
                              "Also install the shop example into the schema public");
    migrate_command->add_flag(
        "--require-proof", given.require_proof,
        "From now on callers of fencing.enter have to give a lease_id, which the database verifies with the "
        "signing key and the verification keys of --config");
    migrate_command->footer(
        "Example:\n  fencegate migrate --conninfo 'host=/run/postgresql dbname=shop user=postgres' --gateway-role "
        "fencegate\n--config takes postgres.conninfo of that file; --conninfo overrides it.");

    CLI::App* check_command =
        app.add_subcommand("check", "Check a configuration, PostgreSQL and the Redis nodes without changing anything");
    add_config(*check_command, given, true);
    add_insecure(*check_command, given);
    check_command->footer("Example:\n  fencegate check --config fencegate.yaml");

    CLI::App* verify_command = app.add_subcommand(
        "verify", "Replay the history: prove the promises of the guard, or name the row that breaks one");
    describe_verify(*verify_command, given);

    CLI::App* fence_all_command = app.add_subcommand(
        "fence-all",
        "Refuse every fencing token given so far, after a restore or in doubt about the data in PostgreSQL");
    add_config(*fence_all_command, given, false);
    add_conninfo(*fence_all_command, given, "libpq connection string of the role that owns the schema fencing");
    fence_all_command->add_option("--reason", given.reason, "Why, for the history")->required();
    fence_all_command->footer(
        "Running gateways set a floor above every token. Leases stay; their holders need a new one to write.\n"
        "Example:\n  fencegate fence-all --conninfo 'dbname=shop user=postgres' --reason 'snapshot of 09:00 put back'\n"
        "--config takes postgres.conninfo of that file; --conninfo overrides it.");

    CLI::App* erase_command = app.add_subcommand(
        "erase", "Replace a person's names in the history and in recorded changes by a pseudonym, for good");
    add_config(*erase_command, given, false);
    add_conninfo(*erase_command, given, "libpq connection string of the role that owns the schema fencing");
    erase_command
        ->add_option("--name", given.erase.names,
                     "An owner, principal, address or other value, whole as it is stored; may be repeated")
        ->required()
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    erase_command->add_option("--reason", given.erase.reason, "Why, for the history, without the names")->required();
    erase_command->footer(
        "--config has the key of digests, which signs those that replace the digests of the changed rows.\n"
        "Example:\n  fencegate erase --config fencegate.yaml --conninfo 'dbname=shop user=postgres' --name jane "
        "--reason 'order 7'");
    cli::commands client_commands(app);
    bench::add_command(client_commands);
    if (const auto code = client_commands.parse(argc, argv)) return *code;
    if (const auto code = client_commands.run()) return *code;
    start_logging({.json = false});  // serve starts its own with the settings of its file
    if (dev_command->parsed()) {
        spdlog::set_level(spdlog::level::warn);
        return devstack::run(given.dev);
    }
    const CLI::App& command = *app.get_subcommands().front();
    if (migrate_command->parsed() && given.require_proof && given.config_file.empty()) {
        std::cerr << "fencegate migrate: --require-proof needs --config, which has the signing key\n";
        return exit_usage;
    }
    if (verify_command->parsed() && !given.export_file.empty())
        return admin::check_export(given.export_file, given.verify.digests.public_keys, given.verify.json);
    if (verify_command->parsed() && given.verify.digests.file.empty() && !given.verify.digests.public_keys.empty()) {
        std::cerr << "fencegate verify: --public-key needs --digests or --export\n";
        return exit_usage;
    }
    if (given.conninfo.empty() && given.config_file.empty()) {
        std::cerr << "fencegate " << command.get_name() << ": needs --config or --conninfo\n";
        return exit_usage;
    }
    const auto erase = [&](const std::string& conninfo, audit_config audit) {
        given.erase.conninfo = conninfo;
        given.erase.audit = std::move(audit);
        return admin::erase(given.erase);
    };
    const bool needs_both = given.require_proof || (erase_command->parsed() && !given.config_file.empty());
    if (!given.conninfo.empty() && !needs_both) {  // the configuration is not needed
        if (erase_command->parsed()) return erase(given.conninfo, {});
        if (migrate_command->parsed()) return migrate(given, given.conninfo);
        if (fence_all_command->parsed()) return admin::fence_all(given.conninfo, given.reason);
        postgres_config database;
        database.conninfo = given.conninfo;
        return admin::verify(database, given.verify);
    }
    const bool listens = serve_command->parsed() || check_command->parsed();
    const auto rule = listens && !given.insecure ? exposure_rule::refuse : exposure_rule::allow;
    const auto cfg = read_config(given.config_file, rule);
    if (!cfg) return exit_bad_config;
    if (serve_command->parsed()) return serve(*cfg, {given.config_file, rule});
    if (check_command->parsed()) return admin::check(*cfg);
    if (fence_all_command->parsed()) return admin::fence_all(cfg->postgres.conninfo, given.reason);
    if (verify_command->parsed()) return admin::verify(cfg->postgres, given.verify);
    if (erase_command->parsed())
        return erase(given.conninfo.empty() ? cfg->postgres.conninfo : given.conninfo, cfg->audit);
    if (given.require_proof) {
        std::vector<std::string>& proof_keys = given.migrate.extras.proof_keys;
        proof_keys = cfg->lease.verification_keys;
        proof_keys.insert(proof_keys.begin(), cfg->lease.signing_key);
    }
    return migrate(given, given.conninfo.empty() ? cfg->postgres.conninfo : given.conninfo);
}

}  // namespace

// Settings of jemalloc, which reads this variable when the program starts (docs/decisions.md, 0015). Freed memory
// returns to the system after a second, also while the program is idle.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
}

int main(int argc, char** argv) {
    const std::string_view command = argc > 1 ? argv[1] : "";
    return cli::run_program(command, command == "verify" ? static_cast<int>(admin::could_not_run) : exit_failed,
                            [&] { return run(argc, argv); });
}
