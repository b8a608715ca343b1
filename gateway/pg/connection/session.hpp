#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>
#include <gateway/pg/connection/sql_value.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Thrown where PostgreSQL refused a statement. The session can be used further, unless the SQLSTATE's rule says
/// ends_session.
class statement_failed : public std::runtime_error {
  public:
    explicit statement_failed(server_error e) : std::runtime_error(e.message), error(std::move(e)) {}
    server_error error;
};

/// Thrown where the session is lost, or none can be made. The effect of the last statement is unknown.
class session_lost : public std::runtime_error {
  public:
    /// `log_text` is for the log; `cause_clause` is for callers and contains nothing of the connection string.
    explicit session_lost(const std::string& log_text, std::string cause_clause = "the connection to PostgreSQL broke")
        : std::runtime_error(log_text), cause(std::move(cause_clause)) {}
    std::string cause;
};

/// How long connecting may take, unless the connection string says otherwise: the least that libpq supports.
inline constexpr std::chrono::seconds connect_timeout{2};
/// Maximum number of prepared statements of a session; the least recently used one is dropped first.
inline constexpr std::size_t prepared_max = 256;
/// Most bytes of their texts between two jobs. The server's memory for a statement is many times its text, and callers
/// choose the length of some, such as inserts of many rows.
inline constexpr std::size_t prepared_bytes_max = 512 << 10;

/// Returns the connection string (keywords or URI), with `connect_timeout` added where it has none.
std::string add_connect_timeout(const std::string& conninfo);

/// Returns a connection string with a password, if it has none and `password` is not empty.
std::string add_password(const std::string& conninfo, const std::string& password);

/// Returns libpq's error of connecting with the connection string, on one line for the log: with options, hosts and
/// ports, and without anything that may be a part of a password.
std::string describe_connect_error(std::string_view error, const std::string& conninfo);

/// Returns the cause of a connection error as a clause for callers, which their operator understands. `problem` comes
/// from describe_connect_error.
std::string classify_connect_error(std::string_view problem);

/// The answer to one statement of a round trip.
class answer_rows {
  public:
    explicit answer_rows(PGresult* made) : result_(made, &PQclear) {}

    int size() const { return PQntuples(result_.get()); }
    int columns() const { return PQnfields(result_.get()); }
    bool is_null(int row, int column) const { return PQgetisnull(result_.get(), row, column) != 0; }
    /// Returns a value; empty for NULL. Throws std::out_of_range where the answer has no such row or column.
    const char* text(int row, int column) const;
    /// Returns a value that may contain any byte. Throws as text() does.
    std::string_view bytes(int row, int column) const;
    std::int64_t affected() const;
    ExecStatusType status() const { return PQresultStatus(result_.get()); }
    /// Returns the error of a statement that failed.
    server_error error() const;

  private:
    std::unique_ptr<PGresult, void (*)(PGresult*)> result_;
};

/// Takes the rows of a statement one by one as they arrive.
class row_receiver {
  public:
    virtual void take(const answer_rows& row) = 0;

  protected:
    ~row_receiver() = default;
};

/// A statement to run: the name from session::prepare, and values that live until run() returns.
struct prepared_call {
    std::string name;
    const compat::parameters* parameters;
    /// Takes the rows one by one as they arrive, in the binary format, so that they are never held together; the answer
    /// in the round trip then has no rows. Lives until run() returns.
    row_receiver* receiver = nullptr;
};

/// The answers of a round trip in order, up to the first statement that failed.
struct round_trip {
    std::vector<answer_rows> answers;
    std::optional<server_error> error;  ///< Of the statement after the last answer; the server skipped the rest.
};

/// Which errors session::run returns; for all others it throws session_lost.
enum class statement_errors {
    usable_session,  ///< Errors after which the session can be used further.
    read_only,       ///< The same, and 25006: a change was refused in a transaction that was begun read-only.
    all              ///< All errors but those with which the server ends the session.
};

/// One connection to PostgreSQL with its settings and prepared statements.
///
/// It never reconnects: a lost session is discarded and another one is made. libpqxx 6.4 would reconnect silently and
/// lose the settings.
///
/// Threads: not safe; used by one worker.
class session {
  public:
    /// Connects. Throws session_lost with a text fit for the log.
    explicit session(const postgres_config& cfg);
    /// Sets everything on which the rest of this folder relies; called before anything else runs. Throws as exec does.
    void configure(const postgres_config& cfg);
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() = default;

    /// Records that code of an application is about to run here which may leave settings, locks or a role behind: a
    /// function, or a policy or trigger in a caller's role.
    void mark_user_code_executed() { user_code_executed_ = true; }
    /// Resets the session in one round trip if mark_user_code_executed was called since the last time. Throws as exec
    /// does.
    void clean(const postgres_config& cfg);

    /// Runs a statement, which is prepared and found again by its text. Throws statement_failed or session_lost.
    pqxx::result exec(const std::string& sql, const compat::parameters& parameters);

    /// Runs a statement that is planned for these values: for filters, whose selectivity a generic plan does not know.
    /// Throws as exec does.
    pqxx::result exec_once(const std::string& sql, const compat::parameters& parameters);

    /// Runs a statement as exec_once does, and passes its rows to `take` one by one as they arrive, so that they are
    /// never held together. Throws as exec does.
    void read_each(const std::string& sql, const compat::parameters& parameters,
                   const std::function<void(const answer_rows& row)>& take);

    /// Runs a statement as exec does, and passes its rows to `receiver`. Throws as exec does.
    void receive(const std::string& sql, const compat::parameters& parameters, row_receiver& receiver);

    /// Runs statements without parameters in one round trip (simple protocol). Throws as exec does.
    void command(const std::string& sql);

    /// Whether the connection leads to the backend without a pooler in between, which would announce another process
    /// than the one that answers. One round trip. Throws as exec does.
    bool is_direct();

    /// Prepares the statement if it is not prepared yet, and returns its name. The name is valid in this session until
    /// prepared_max other statements were used. Throws as exec does.
    std::string prepare(const std::string& sql);

    bool is_prepared(const std::string& sql) const { return by_sql_.contains(sql); }

    /// Drops the prepared statements that were used longest ago, until the texts of the rest have at most
    /// prepared_bytes_max. Throws as exec does.
    void drop_excess_statements();

    /// Drops the prepared statements if they were made for another generation of the catalog. Throws as exec does.
    void use_catalog_generation(std::uint64_t generation);

    /// Waits until the server or `wake` (a file descriptor) has something to read, or `timeout` has passed. Out:
    /// whether the server sent a notification (NOTIFY). Throws session_lost.
    bool wait_for_notification(int wake, std::chrono::milliseconds timeout);

    /// Runs statements in order in one round trip (libpq's pipeline mode). Throws session_lost, also for an error that
    /// is not among `returned`.
    round_trip run(std::span<const prepared_call> calls, statement_errors returned = statement_errors::usable_session);

    /// Whether the server sent anything while the session was idle: it is closing, or it changed a setting. In both
    /// cases a new session is needed. One system call.
    bool has_unsolicited_input() const;

    /// Whether a transaction is open in which no statement failed, so that COMMIT would commit it.
    bool in_transaction() const { return PQtransactionStatus(connection_.raw()) == PQTRANS_INTRANS; }

    /// Whether a transaction is open, failed or not.
    bool has_open_transaction() const { return PQtransactionStatus(connection_.raw()) != PQTRANS_IDLE; }

    /// Whether the session should not be used again.
    bool is_unusable() const { return unusable_; }

    /// Records that a job begins.
    void begin_job() { ++jobs_; }
    /// Whether the session has served an earlier job, so that what it has prepared may be outdated.
    bool is_reused() const { return jobs_ > 1; }
    /// Whether an error said that a statement or plan that the session keeps is outdated (is_outdated_statement): no
    /// further job should use it.
    bool has_outdated_statements() const { return has_outdated_statements_; }

    int socket() const { return connection_.sock(); }

  private:
    template <class Work>
    auto run_checked(Work work) -> decltype(work());
    std::string prepared_name(const std::string& sql);
    void drop_oldest_statement();

    void throw_failure(const server_error& error);
    /// Records what the error says about the session.
    void note_error(const server_error& error);
    round_trip run_pipeline(std::span<const prepared_call> calls);

    mutable compat::connection connection_;
    /// Runs every statement as it is; BEGIN and COMMIT are sent explicitly.
    std::optional<pqxx::nontransaction> channel_;
    int backend_pid_ = 0;
    bool unusable_ = false;
    bool user_code_executed_ = false;
    bool has_outdated_statements_ = false;
    std::uint64_t jobs_ = 0;

    struct prepared {
        std::string sql;
        std::string name;
    };
    std::list<prepared> by_use_;                                                  ///< Latest first.
    std::unordered_map<std::string_view, std::list<prepared>::iterator> by_sql_;  ///< Keys point into by_use_.
    std::size_t prepared_bytes_ = 0;                                              ///< Of the texts in by_use_.
    std::size_t names_ = 0;
    std::uint64_t generation_ = 0;
};

}  // namespace fencegate::pg
