#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/connection/session.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <chrono>
#include <exception>
#include <span>
#include <string>
#include <utility>

namespace fencegate::pg {

using deadline = std::chrono::steady_clock::time_point;

/// Everything that the write path needs of a connection to PostgreSQL; session_slot has it. The write path reaches the
/// server in no other way, so that a test can let each message fail.
///
/// Errors:  throws statement_failed where PostgreSQL refused, session_lost where the connection broke or none can be
///          made.
/// Threads: not safe; used by one worker.
class write_session {
  public:
    virtual ~write_session() = default;

    /// Prepares the statement and returns its name; see session::prepare.
    virtual std::string prepare(const std::string& sql) = 0;
    /// Whether prepare() would send nothing.
    virtual bool is_prepared(const std::string& sql) const = 0;
    /// Runs prepared statements in one round trip; see session::run.
    virtual round_trip run(std::span<const prepared_call> calls, statement_errors returned) = 0;
    /// Runs one statement without parameters.
    virtual void command(const std::string& sql) = 0;
    /// Whether a transaction is open in which no statement failed. Throws session_lost as the others do.
    virtual bool in_transaction() = 0;
    /// Records that a function of an application is about to run.
    virtual void mark_user_code_executed() = 0;

    /// Replaces the session by a new one, even before the time of the next attempt.
    virtual void connect() = 0;
    /// Ends the session, and so its transaction.
    virtual void drop() = 0;
    /// Whether another thread cut the connection of the work under way.
    virtual bool was_cut() const = 0;
    /// Records that COMMIT is about to be sent. Throws session_lost where the connection was cut before; then COMMIT
    /// must not be sent.
    virtual void begin_commit() = 0;
    /// Records that a transaction begins, after the callers of the last one were answered. Before this, a cut of the
    /// connection does not mean that nothing was changed: the last transaction may be committed.
    virtual void begin_transaction() = 0;

    /// Whether the session has served an earlier job; see session::is_reused.
    virtual bool is_reused() const = 0;
    /// Returns when the session was ready. As long as the session answers, the server has not crashed since then.
    virtual std::chrono::steady_clock::time_point connected_since() const = 0;
    /// Sets the time by which an answer is expected. The connection is cut silence_max after it.
    virtual void expect_answer_by(deadline until) = 0;

    virtual const postgres_config& settings() const = 0;
};

/// Runs one statement in a round trip of its own. Throws statement_failed, session_lost.
inline answer_rows run_statement(write_session& session, const std::string& sql, const compat::parameters& values) {
    const prepared_call call{session.prepare(sql), &values};
    auto trip = session.run({&call, 1}, statement_errors::all);
    if (trip.error) throw statement_failed(std::move(*trip.error));
    return std::move(trip.answers.front());
}

/// Ends the transaction, and where that fails the session.
inline void roll_back(write_session& session) {
    try {
        session.command("rollback");
    } catch (const std::exception&) {
        session.drop();
    }
}

/// Runs `work` on the session, and once more on a new one where the first was lost or has outdated statements. For work
/// that may run twice.
template <class Session, class Work>
auto retry_once(Session& session, Work work) {
    try {
        return work(session);
    } catch (const session_lost&) {
        if (session.was_cut()) throw;
    } catch (const statement_failed& e) {
        if (session.was_cut() || !is_outdated_statement(e.error)) throw;
    }
    session.connect();
    return work(session);
}

}  // namespace fencegate::pg
