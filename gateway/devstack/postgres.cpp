#include <gateway/devstack/postgres.hpp>

#include <gateway/admin/commands.hpp>
#include <gateway/devstack/files.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/schema/migrate.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

namespace fencegate::devstack {
namespace {

/// sun_path holds 108 bytes with the terminating zero; PostgreSQL appends /.s.PGSQL.65535 to the folder.
constexpr std::size_t socket_folder_max = 107 - std::string_view("/.s.PGSQL.65535").size();

/// Finds PostgreSQL's programs in Debian's folders, one per major version: the version that created the data if there
/// are any, else the newest. Without such folders, searches the PATH.
std::filesystem::path find_programs(const std::filesystem::path& data) {
    std::string version = read_file(data / "PG_VERSION");
    while (version.ends_with('\n'))
        version.pop_back();
    const std::filesystem::path all = "/usr/lib/postgresql";
    std::error_code ignored;
    std::filesystem::path newest;
    int newest_version = 0;
    for (const auto& entry : std::filesystem::directory_iterator(all, ignored)) {
        const int number = std::atoi(entry.path().filename().c_str());
        if (!std::filesystem::exists(entry.path() / "bin/initdb", ignored)) continue;
        if (entry.path().filename() == version) return entry.path() / "bin";
        if (number > newest_version) {
            newest = entry.path() / "bin";
            newest_version = number;
        }
    }
    if (!version.empty() && newest_version != 0) {
        throw stack_error(data.string() + " was made by PostgreSQL " + version +
                          ", which is not installed; choose another --data-dir");
    }
    if (newest_version != 0) return newest;
    if (const auto folder = find_on_path("initdb"); !folder.empty()) return folder;
    throw stack_error(std::string("PostgreSQL's initdb is neither below /usr/lib/postgresql nor on the PATH; ") +
                      install_advice);
}

/// Quotes a value for a configuration file of PostgreSQL or for a connection string.
std::string quote(const std::string& value) {
    std::string text = "'";
    for (const char c : value) {
        if (c == '\'' || c == '\\') text += '\\';
        text += c;
    }
    return text + "'";
}

}  // namespace

postgres::postgres(const std::filesystem::path& dir, endpoint address)
    : dir_(dir),
      data_(dir / "postgres"),
      sockets_(dir / "run"),
      address_(std::move(address)),
      user_(unprivileged_account()) {
    if (user_ && !can_enter(*user_, dir_)) {
        throw stack_error("PostgreSQL does not run as root, and its user " + user_->name + " may not enter " +
                          dir_.string() +
                          ": give it the right to enter each folder on the way, or choose another --data-dir, such as "
                          "/var/tmp/fencegate-dev");
    }
    const uid_t owner = user_ ? user_->uid : geteuid();
    const gid_t group = user_ ? user_->gid : getegid();
    if (sockets_.string().size() > socket_folder_max) {
        // The name depends on DIR, so that each start finds the same folder; ensure_folder refuses one of another user.
        sockets_ = "/tmp/fencegate-" + std::to_string(geteuid()) + "-" +
                   std::to_string(std::hash<std::string>{}(dir_.string()));
    }
    ensure_folder(sockets_, 0700, owner, group);
    ensure_folder(data_, 0700, owner, group);
    programs_ = find_programs(data_);
    initialize_once();
    write_settings();
}

void postgres::initialize_once() const {
    if (std::filesystem::exists(data_ / "PG_VERSION")) return;
    program initdb;
    initdb.name = "initdb";
    initdb.argv = {programs_ / "initdb",
                   "--pgdata=" + data_.string(),
                   std::string("--username=") + superuser,
                   "--auth=trust",
                   "--encoding=UTF8",
                   "--locale=C.UTF-8",
                   "--data-checksums",
                   "--no-instructions"};
    initdb.user = user_;
    initdb.folder = data_;
    initdb.log = dir_ / "logs/initdb.log";
    run_to_completion(initdb);
}

void postgres::write_settings() const {
    // Outside the data folder, so that PostgreSQL's user can't change the rules of authentication.
    write_atomically(dir_ / "pg_hba.conf",
                     "# Made by fencegate dev. Only this stack's user and root can enter the socket's folder.\n"
                     "local all all trust\n"
                     "host  all all all scram-sha-256\n",
                     0644);
    write_atomically(
        dir_ / "postgresql.conf",
        "# Made by fencegate dev at each start. fsync, synchronous_commit and full_page_writes stay as they are: on.\n"
        "data_directory = " +
            quote(data_.string()) +
            "\n"
            "hba_file = " +
            quote((dir_ / "pg_hba.conf").string()) +
            "\n"
            "ident_file = " +
            quote((data_ / "pg_ident.conf").string()) +
            "\n"
            "unix_socket_directories = " +
            quote(sockets_.string()) +
            "\n"
            "unix_socket_permissions = 0700\n"
            "listen_addresses = " +
            quote(address_.address) +
            "\n"
            "port = " +
            std::to_string(address_.port) +
            "\n"
            "max_connections = 200\n"
            "shared_buffers = 128MB\n"
            "max_wal_size = 2GB\n"
            "checkpoint_timeout = 15min\n"
            "jit = off\n"
            "log_line_prefix = '%m [%p] %u@%d '\n"
            "cluster_name = 'fencegate dev'\n",
        0644);
    std::string pgpass;
    for (const char* role : {superuser, gateway_role})
        pgpass += "*:" + std::to_string(address_.port) + ":*:" + role + ":" + password_of(role) + "\n";
    write_atomically(dir_ / "pgpass", pgpass, 0600);
}

std::string postgres::password_of(const std::string& role) const {
    return load_or_create_password(dir_ / ("postgres-" + role + ".password"));
}

program postgres::server() const {
    program server;
    server.name = "postgres";
    server.argv = {programs_ / "postgres", "--config-file=" + (dir_ / "postgresql.conf").string()};
    server.user = user_;
    server.folder = data_;
    server.log = dir_ / "logs/postgres.log";
    // Fast shutdown: terminates sessions and writes a checkpoint. SIGTERM would wait for every client to disconnect.
    server.stop_signal = SIGINT;
    server.orphan_signal = SIGINT;
    server.is_answering = [this] { return is_answering(); };
    return server;
}

bool postgres::is_answering() const {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = (sockets_ / (".s.PGSQL." + std::to_string(address_.port))).string();
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (probe < 0) return false;
    const bool connected = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(probe);
    return connected;
}

std::string postgres::conninfo(const std::string& user, const std::string& dbname) const {
    return "host=" + quote(sockets_.string()) + " port=" + std::to_string(address_.port) + " dbname=" + dbname +
           " user=" + user;
}

boost::json::object postgres::tcp_address() const {
    // The password consists of letters, digits and hyphens, so that it needs no escaping.
    const std::string password = password_of(superuser);
    const std::string server = address_.authority() + "/" + database;
    return {{"host", address_.host()},
            {"password", password},
            {"url", std::string("postgresql://") + superuser + ":" + password + "@" + server},
            {"jdbc", "jdbc:postgresql://" + server + "?user=" + superuser + "&password=" + password}};
}

bool postgres::install() const {
    if (!is_answering()) return false;
    try {
        postgres_config cfg;
        cfg.conninfo = conninfo(superuser, "postgres");
        pg::session server(cfg);
        if (server.exec("select 1 from pg_catalog.pg_database where datname = $1", {std::string(database)}).empty()) {
            server.command(std::string("create database ") + database);
        }
    } catch (const pg::session_lost&) {
        return false;  // the server listens before it accepts sessions
    } catch (const pg::statement_failed& e) {
        throw stack_error(std::string("the database could not be created: ") + e.what());
    }
    admin::sql_scripts scripts = admin::schema_scripts();
    scripts.push_back(admin::shop_script());
    const std::string login = gateway_role;
    // The passwords need no escaping, as above.
    scripts.emplace_back("dev stack",
                         "do $do$ begin\n"
                         "  if not exists (select from pg_catalog.pg_roles where rolname = '" +
                             login + "') then create role " + login +
                             " login; end if;\n"
                             "end $do$;\n"
                             "grant fencing_gateway to " +
                             login +
                             ";\n"
                             "alter role " +
                             login + " password '" + password_of(login) +
                             "';\n"
                             "alter role " +
                             superuser + " password '" + password_of(superuser) + "';\n");
    const auto done = pg::migrate(conninfo(superuser, database), scripts);
    if (done && done->recorder_fault.empty()) return true;
    if (done) throw stack_error("the recorder of refusals does not work: " + done->recorder_fault);
    if (done.error().code == errc::storage_unavailable) return false;
    throw stack_error("the schema could not be installed: " + done.error().detail);
}

void postgres::remove_socket_folder() const {
    if (sockets_.parent_path() == dir_) return;
    std::error_code ignored;
    std::filesystem::remove(sockets_, ignored);
}

}  // namespace fencegate::devstack
