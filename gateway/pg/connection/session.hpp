#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/connection/pqxx_compat.hpp>
#include <gateway/pg/connection/server_error.hpp>
#include <gateway/pg/connection/sql_value.hpp>

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

/// Thrown where PostgreSQL refused a statement; the session lives on (unless its rule says that it is of no further
/// use).
class statement_failed : public std::runtime_error {
  public:
    explicit statement_failed(server_error e) : std::runtime_error(e.message), error(std::move(e)) {}
    server_error error;
};

/// Thrown where the session is gone, or none can be had. What the last statement did is unknown.
class session_lost : public std::runtime_error {
  public:
    /// `words` are for a log, `why` is for callers: a clause without anything of the connection string.
    explicit session_lost(const std::string& words, std::string why = "the connection to PostgreSQL broke")
        : std::runtime_error(words), cause(std::move(why)) {}
    std::string cause;
};

/// How long a connection may take to be made, unless the connection string says otherwise. libpq's smallest.
inline constexpr std::chrono::seconds connect_timeout{2};
/// Prepared statements kept by a session; the one unused longest goes first.
inline constexpr std::size_t prepared_max = 256;

/// The connection string with `connect_timeout` where it has none; keyword and URI form.
std::string with_connect_timeout(const std::string& conninfo);

/// What may be said of a failed connection: the server's or the system's words, without anything of the connection
/// string.
std::string connect_problem(std::string_view what);

/// The same for callers, as a clause: what they are to tell their operator. `problem` is connect_problem's.
std::string connect_cause(std::string_view problem);

/// What a statement of a round trip answered.
class answer_rows {
  public:
    explicit answer_rows(PGresult* made) : result_(made, &PQclear) {}

    int size() const { return PQntuples(result_.get()); }
    int columns() const { return PQnfields(result_.get()); }
    bool is_null(int row, int column) const { return PQgetisnull(result_.get(), row, column) != 0; }
    /// Empty for NULL. Throws std::out_of_range where the answer has no such place.
    const char* text(int row, int column) const;
    /// The same of a value that may hold any byte.
    std::string_view bytes(int row, int column) const;
    std::int64_t affected() const;
    ExecStatusType status() const { return PQresultStatus(result_.get()); }
    /// Of a statement that failed.
    server_error error() const;

  private:
    std::unique_ptr<PGresult, void (*)(PGresult*)> result_;
};

/// Takes the rows of a statement, each once, as they come.
class row_receiver {
  public:
    virtual void take(const answer_rows& row) = 0;

  protected:
    ~row_receiver() = default;
};

/// A statement on its way: the name that session::prepare gave, and values that live until run() returns.
struct prepared_call {
    std::string name;
    const compat::parameters* parameters;
    /// Takes the rows one by one as they come, in the binary format, so that they are never held together: the answer
    /// in the round trip has none. Lives until run() returns.
    row_receiver* receiver = nullptr;
};

/// What a round trip brought: the answers in order, up to the first statement that failed.
struct round_trip {
    std::vector<answer_rows> answers;
    std::optional<server_error> error;  ///< Of the statement behind the last answer; the server skipped what followed.
};

/// Which errors are a statement's own answer, and not that of a session that is lost.
enum class statement_errors {
    usable_session,  ///< Those that leave a session of further use.
    read_only,       ///< The same, and that a change was refused (25006) where the transaction was begun read-only.
    all              ///< All but those by which the server ends the session.
};

/// One connection to PostgreSQL, and all that hangs on its life: settings, prepared statements.
///
/// Never reconnects: a session that is lost is thrown away and another one built. libpqxx 6.4 would do so silently and
/// lose the settings. Threads: not safe; one worker's.
class session {
  public:
    /// Connects. Throws session_lost with words fit for a log.
    explicit session(const postgres_config& cfg);
    /// Sets what the rest of this folder relies on; before anything else is run. Throws as exec does.
    void configure(const postgres_config& cfg);
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() = default;

    /// A function of an application is about to run here: it may leave settings, locks or a role behind.
    void let_application_in() { application_was_in_ = true; }
    /// Takes away whatever one has left, in one round trip; nothing where none was here. Throws as exec does.
    void clean(const postgres_config& cfg);

    /// Runs a statement, prepared under its text. Throws statement_failed or session_lost.
    pqxx::result exec(const std::string& sql, const compat::parameters& parameters);

    /// Runs a statement that is planned for these values alone: for filters, of which a plan for any value knows
    /// nothing. Throws as exec does.
    pqxx::result exec_once(const std::string& sql, const compat::parameters& parameters);

    /// Runs a statement as exec_once does, and gives `take` its rows one by one as they come, so that they are never
    /// held together. Throws as exec does.
    void read_each(const std::string& sql, const compat::parameters& parameters,
                   const std::function<void(const answer_rows& row)>& take);

    /// Runs a statement as exec does, and gives its rows to `receiver`. Throws as exec does.
    void receive(const std::string& sql, const compat::parameters& parameters, row_receiver& receiver);

    /// Runs statements without parameters in one round trip (simple protocol). Throws as exec does.
    void command(const std::string& sql);

    /// Whether this is the backend's own connection: a pooler between announces another process than the one that
    /// answers. One round trip. Throws as exec does.
    bool direct();

    /// Makes the statement known to the server, if it is not yet, and gives its name: good for this session until
    /// prepared_max other statements were used. Throws as exec does.
    std::string prepare(const std::string& sql);

    /// Forgets the prepared statements if they were made for another generation of the catalog. Throws as exec does.
    void statements_for(std::uint64_t generation);

    /// Waits until the server or `wake` (a file descriptor) has something to read, at most for so long. True: the
    /// server has sent a notification (listen). Throws session_lost.
    bool wait_for_notification(int wake, std::chrono::milliseconds at_most);

    /// Runs statements in order in one round trip (libpq's pipeline mode). Throws session_lost; also for an error that
    /// is not among `own`.
    round_trip run(std::span<const prepared_call> calls, statement_errors own = statement_errors::usable_session);

    /// Whether the server has said anything while the session was idle: it is closing, or a setting changed under us.
    /// Either way a new session is the cure. One system call.
    bool disturbed() const;

    /// Whether a transaction is open in which nothing has failed: COMMIT would commit it.
    bool in_transaction() const { return PQtransactionStatus(connection_.raw()) == PQTRANS_INTRANS; }

    /// Whether the session should not be used again.
    bool spent() const { return spent_; }

    int socket() const { return connection_.sock(); }

  private:
    template <class Work>
    auto guarded(Work work) -> decltype(work());
    std::string prepared_name(const std::string& sql);

    void throw_failure(const server_error& error);
    round_trip run_pipeline(std::span<const prepared_call> calls);

    mutable compat::connection connection_;
    std::optional<pqxx::nontransaction>
        channel_;  ///< BEGIN and COMMIT are sent as what they are: nothing is guessed on our behalf.
    int backend_pid_ = 0;
    bool spent_ = false;
    bool application_was_in_ = false;

    struct prepared {
        std::string sql;
        std::string name;
    };
    std::list<prepared> by_use_;                                                  ///< Latest first.
    std::unordered_map<std::string_view, std::list<prepared>::iterator> by_sql_;  ///< Keys point into by_use_.
    std::size_t names_ = 0;
    std::uint64_t generation_ = 0;
};

}  // namespace fencegate::pg
