#include <gateway/config/conninfo.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <spdlog/fmt/fmt.h>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <new>
#include <stdexcept>

namespace fencegate::pg {
namespace {

/// Returns the commands that set everything on which the rest of this folder relies, for one round trip.
std::string settings_sql(const postgres_config& cfg) {
    const auto statement_ms = std::to_string(cfg.statement_timeout.count());
    return "set application_name = 'fencegate';"
           // Names of the catalog are qualified, and an application's schema can't slip its own functions in.
           "set search_path = pg_catalog, pg_temp;"
           "set statement_timeout = " +
           statement_ms +
           ";"
           "set lock_timeout = " +
           std::to_string(cfg.lock_timeout.count()) +
           ";"
           // A gateway that is stopped in the middle of a transaction must not hold the guard's rows for longer than a
           // statement may.
           "set idle_in_transaction_session_timeout = " +
           statement_ms +
           ";"
           // begin does not name a level, and the functions of the guard rely on this one. Whether transactions are
           // read-only by default is left: an operator sets it to stop writes.
           "set default_transaction_isolation = 'read committed';"
           // The JSON form of times must not depend on the server's time zone.
           "set timezone = 'UTC';"
           "set datestyle = 'ISO, MDY';"
           // The same for intervals, bytes and doubles: what was read can be written back.
           "set intervalstyle = 'postgres';"
           "set bytea_output = 'hex';"
           "set extra_float_digits = 1;"
           // Texts of statements and names mean the same whatever the database's settings.
           "set standard_conforming_strings = on;"
           "set quote_all_identifiers = off;"
           "set client_encoding = 'UTF8';"
           "set client_min_messages = 'error'";
}

std::vector<const char*> pointers_to(const compat::parameters& parameters) {
    std::vector<const char*> out;
    out.reserve(parameters.size());
    for (const auto& value : parameters)
        out.push_back(value ? value->c_str() : nullptr);
    return out;
}

session_lost ended_by(const server_error& error) {
    return session_lost("the server ended the session: " + error.sqlstate, cause_of(error.sqlstate));
}

}  // namespace

std::string add_connect_timeout(const std::string& conninfo) {
    if (conninfo.find("connect_timeout") != std::string::npos) return conninfo;
    const auto setting = "connect_timeout=" + std::to_string(connect_timeout.count());
    if (!is_connection_uri(conninfo)) return setting + " " + conninfo;
    return conninfo + (conninfo.find('?') == std::string::npos ? "?" : "&") + setting;
}

std::string add_password(const std::string& conninfo, const std::string& password) {
    if (password.empty()) return conninfo;
    if (!is_connection_uri(conninfo)) {
        std::string quoted;
        for (const char c : password) {
            if (c == '\'' || c == '\\') quoted += '\\';
            quoted += c;
        }
        return "password='" + quoted + "' " + conninfo;  // of an option that is given twice, the last one counts
    }
    if (has_password(conninfo)) return conninfo;
    std::string encoded;
    for (const char c : password)
        encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    return conninfo + (conninfo.find('?') == std::string::npos ? "?" : "&") + "password=" + encoded;
}

std::string describe_connect_error(std::string_view error, const std::string& conninfo) {
    if (auto fault = find_conninfo_fault(conninfo)) return *fault;
    if (may_misread_password(conninfo))
        return "no connection could be made with the URI; @, :, / and % in a user or password may have to be "
               "percent-encoded";
    // One line for each address of each host. Lines that begin with a tab ask whether the server runs.
    std::string out;
    while (!error.empty()) {
        const auto line = error.substr(0, error.find('\n'));
        error.remove_prefix(std::min(line.size() + 1, error.size()));
        if (!line.empty() && line.front() != '\t') out.append(out.empty() ? "" : "; ").append(line);
    }
    return out;
}

std::string classify_connect_error(std::string_view problem) {
    // Of several servers the last one counts.
    constexpr std::string_view marker = "failed: ";
    if (const auto found = problem.rfind(marker); found != std::string_view::npos)
        problem.remove_prefix(found + marker.size());
    // libpq gives no SQLSTATE for these. For messages in another language than English the last line applies.
    struct known {
        std::string_view text, cause;
    };
    constexpr std::array<known, 10> known_causes{{
        {"starting up", "PostgreSQL is starting up"},
        {"shutting down", "PostgreSQL is shutting down"},
        {"recovery mode", "PostgreSQL is recovering from a crash"},
        {"not yet accepting connections", "PostgreSQL is starting up"},
        {"too many clients", "PostgreSQL has no connection left (max_connections)"},
        {"connection slots are reserved", "PostgreSQL has no connection left (max_connections)"},
        {"too many connections", "PostgreSQL has no connection left for this database or role"},
        {"read-only", "only a read-only PostgreSQL answers (a standby, or default_transaction_read_only is on)"},
        {"hot standby", "only a read-only PostgreSQL answers (a standby, or default_transaction_read_only is on)"},
        {"timeout expired", "PostgreSQL does not answer"},
    }};
    for (const auto& entry : known_causes) {
        if (problem.find(entry.text) != std::string_view::npos) return std::string(entry.cause);
    }
    return "PostgreSQL can't be reached";
}

/// Runs `work` and turns every exception of libpqxx into statement_failed or session_lost.
template <class Work>
auto session::run_checked(Work work) -> decltype(work()) {
    if (unusable_) throw session_lost("the session is not usable any more");
    try {
        // libpqxx 6.4 may have connected the same object to another backend, which has none of the session's settings
        // and not its transaction.
        if (connection_.backendpid() != backend_pid_) {
            unusable_ = true;
            throw session_lost("the connection leads to another backend");
        }
        return work();
    } catch (const session_lost&) {
        throw;
    } catch (const pqxx::broken_connection&) {
        unusable_ = true;
        throw session_lost("the connection broke");
    } catch (const pqxx::failure& e) {
        auto error = parse_server_error(e.what());
        if (!connection_.is_open() || error.fatal || error.sqlstate.empty()) {
            unusable_ = true;
            if (error.sqlstate.empty()) throw session_lost("the connection failed");
            throw ended_by(error);
        }
        note_error(error);
        throw statement_failed(std::move(error));
    } catch (const std::bad_alloc&) {
        unusable_ = true;
        throw;
    }
}

session::session(const postgres_config& cfg) try
    : connection_(add_password(add_connect_timeout(cfg.conninfo), cfg.password)) {
    compat::forbid_reactivation(connection_);
    compat::make_verbose(connection_);
    backend_pid_ = connection_.backendpid();
    channel_.emplace(connection_);
} catch (const std::exception& e) {
    const auto problem = describe_connect_error(e.what(), cfg.conninfo);
    throw session_lost(problem, classify_connect_error(problem));
}

void session::configure(const postgres_config& cfg) {
    command(settings_sql(cfg));
}

void session::clean(const postgres_config& cfg) {
    if (!user_code_executed_) return;
    // The same as `discard all`, except that prepared statements and cached plans stay.
    command(
        "set session authorization default; reset role; reset all; close all; unlisten *; "
        "select pg_advisory_unlock_all(); discard temp; discard sequences; " +
        settings_sql(cfg));
    user_code_executed_ = false;
}

pqxx::result session::exec(const std::string& sql, const compat::parameters& parameters) {
    return run_checked([&] { return compat::exec_prepared(*channel_, prepared_name(sql), parameters); });
}

pqxx::result session::exec_once(const std::string& sql, const compat::parameters& parameters) {
    return run_checked([&] { return compat::exec_once(*channel_, sql, parameters); });
}

void session::receive(const std::string& sql, const compat::parameters& parameters, row_receiver& receiver) {
    run_checked([&] {
        const prepared_call call{prepared_name(sql), &parameters, &receiver};
        unusable_ = true;
        const auto trip = run_pipeline({&call, 1});
        if (trip.error) throw_failure(*trip.error);
        unusable_ = false;
    });
}

void session::read_each(const std::string& sql, const compat::parameters& parameters,
                        const std::function<void(const answer_rows& row)>& take) {
    run_checked([&] {
        PGconn* const raw = connection_.raw();
        unusable_ = true;
        const auto values = pointers_to(parameters);
        if (PQsendQueryParams(raw, sql.c_str(), static_cast<int>(values.size()), nullptr, values.data(), nullptr,
                              nullptr, 0) != 1 ||
            PQsetSingleRowMode(raw) != 1) {
            throw session_lost("the connection broke");
        }
        std::optional<server_error> error;
        while (PGresult* const next = PQgetResult(raw)) {
            const answer_rows rows(next);
            if (rows.status() == PGRES_SINGLE_TUPLE) take(rows);
            if (rows.status() == PGRES_FATAL_ERROR) error = rows.error();
        }
        if (PQstatus(raw) != CONNECTION_OK) throw session_lost("the connection broke");
        if (error) throw_failure(*error);
        unusable_ = false;
    });
}

/// Throws what run_checked() throws for an error of the server.
void session::throw_failure(const server_error& error) {
    if (error.sqlstate.empty()) throw session_lost("the connection failed");
    if (error.fatal) throw ended_by(error);
    note_error(error);
    throw statement_failed(error);
}

void session::note_error(const server_error& error) {
    unusable_ = rule_of(error.sqlstate).ends_session;
    has_outdated_statements_ = has_outdated_statements_ || is_outdated_statement(error);
}

void session::command(const std::string& sql) {
    run_checked([&] { channel_->exec(sql); });
}

bool session::is_direct() {
    return run_checked(
        [&] { return channel_->exec("select pg_catalog.pg_backend_pid()")[0][0].as<int>() == backend_pid_; });
}

server_error answer_rows::error() const {
    const auto field = [this](int code) {
        const char* text = PQresultErrorField(result_.get(), code);
        return std::string(text == nullptr ? "" : text);
    };
    server_error out;
    out.sqlstate = field(PG_DIAG_SQLSTATE);
    out.message = field(PG_DIAG_MESSAGE_PRIMARY);
    out.detail = field(PG_DIAG_MESSAGE_DETAIL);
    out.constraint = field(PG_DIAG_CONSTRAINT_NAME);
    out.origin = field(PG_DIAG_SOURCE_FUNCTION);
    const auto context = field(PG_DIAG_CONTEXT);
    out.parameter = parameter_of(context);
    out.in_code = names_code(context);
    const auto severity = field(PG_DIAG_SEVERITY_NONLOCALIZED);
    out.fatal = severity == "FATAL" || severity == "PANIC";
    return out;
}

const char* answer_rows::text(int row, int column) const {
    const char* value = PQgetvalue(result_.get(), row, column);
    if (value == nullptr) throw std::out_of_range("PostgreSQL's answer has fewer rows or columns than it should");
    return value;
}

std::string_view answer_rows::bytes(int row, int column) const {
    return {text(row, column), static_cast<std::size_t>(PQgetlength(result_.get(), row, column))};
}

std::int64_t answer_rows::affected() const {
    return std::strtoll(PQcmdTuples(result_.get()), nullptr, 10);
}

std::string session::prepare(const std::string& sql) {
    return run_checked([&] { return prepared_name(sql); });
}

void session::use_catalog_generation(std::uint64_t generation) {
    if (generation_ == generation) return;
    run_checked([&] {
        while (!by_use_.empty())
            drop_oldest_statement();
    });
    generation_ = generation;
}

bool session::wait_for_notification(int wake, std::chrono::milliseconds timeout) {
    return run_checked([&] {
        PGconn* const raw = connection_.raw();
        const auto notified = [raw] {
            bool any = false;
            while (PGnotify* notification = PQnotifies(raw)) {
                PQfreemem(notification);
                any = true;
            }
            return any;
        };
        if (notified()) return true;  // it arrived with an earlier answer
        std::array<pollfd, 2> waiting{pollfd{connection_.sock(), POLLIN, 0}, pollfd{wake, POLLIN, 0}};
        ::poll(waiting.data(), waiting.size(), static_cast<int>(timeout.count()));
        if (PQconsumeInput(raw) == 0 || PQstatus(raw) != CONNECTION_OK) {
            unusable_ = true;
            throw session_lost("the connection broke");
        }
        return notified();
    });
}

round_trip session::run(std::span<const prepared_call> calls, statement_errors returned) {
    return run_checked([&] {
        // An exception before the end leaves the protocol in the middle of an exchange.
        unusable_ = true;
        auto out = run_pipeline(calls);
        const bool is_read_only_error =
            returned == statement_errors::read_only && out.error && out.error->sqlstate == "25006";
        const bool ends_session = out.error && !is_read_only_error && rule_of(out.error->sqlstate).ends_session;
        if (out.error && (out.error->fatal || (ends_session && returned != statement_errors::all)))
            throw ended_by(*out.error);
        if (out.error) note_error(*out.error);
        unusable_ = ends_session;
        return out;
    });
}

round_trip session::run_pipeline(std::span<const prepared_call> calls) {
    PGconn* const raw = connection_.raw();
    const auto require = [](bool done) {
        if (!done) throw session_lost("the connection broke");
    };
    require(PQenterPipelineMode(raw) == 1);
    for (const auto& call : calls) {
        const auto values = pointers_to(*call.parameters);
        require(PQsendQueryPrepared(raw, call.name.c_str(), static_cast<int>(values.size()), values.data(), nullptr,
                                    nullptr, call.receiver == nullptr ? 0 : 1) == 1);
    }
    require(PQpipelineSync(raw) == 1);

    round_trip out;
    out.answers.reserve(calls.size());
    for (const auto& call : calls) {
        if (call.receiver != nullptr && !out.error) require(PQsetSingleRowMode(raw) == 1);
        answer_rows rows(PQgetResult(raw));
        for (; rows.status() == PGRES_SINGLE_TUPLE; rows = answer_rows(PQgetResult(raw)))
            call.receiver->take(rows);
        const auto status = rows.status();
        require(PQstatus(raw) == CONNECTION_OK);
        if (status == PGRES_FATAL_ERROR && !out.error) {
            out.error = rows.error();
            require(!out.error->sqlstate.empty());  // else it is an error of libpq, not of the server
        } else if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
            require(!out.error);
            out.answers.push_back(std::move(rows));
        } else {
            require(status == PGRES_PIPELINE_ABORTED && out.error.has_value());
        }
        require(PQgetResult(raw) == nullptr);
    }
    require(answer_rows(PQgetResult(raw)).status() == PGRES_PIPELINE_SYNC);
    require(PQexitPipelineMode(raw) == 1);
    return out;
}

bool session::has_unsolicited_input() const {
    if (unusable_ || !connection_.is_open()) return true;
    char byte = 0;
    const auto got = ::recv(connection_.sock(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

std::string session::prepared_name(const std::string& sql) {
    if (const auto found = by_sql_.find(sql); found != by_sql_.end()) {
        by_use_.splice(by_use_.begin(), by_use_, found->second);
        return found->second->name;
    }
    if (by_use_.size() >= prepared_max) drop_oldest_statement();
    auto name = "fg" + std::to_string(++names_);
    compat::prepare(connection_, name, sql);
    by_use_.push_front({sql, name});
    by_sql_.emplace(by_use_.front().sql, by_use_.begin());
    prepared_bytes_ += sql.size();
    return name;
}

void session::drop_oldest_statement() {
    const auto oldest = std::prev(by_use_.end());
    by_sql_.erase(oldest->sql);
    const auto name = oldest->name;
    prepared_bytes_ -= oldest->sql.size();
    by_use_.pop_back();
    connection_.unprepare(name);
}

void session::drop_excess_statements() {
    if (prepared_bytes_ <= prepared_bytes_max) return;
    run_checked([&] {
        while (prepared_bytes_ > prepared_bytes_max)
            drop_oldest_statement();
    });
}

}  // namespace fencegate::pg
