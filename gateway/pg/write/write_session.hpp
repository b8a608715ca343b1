#pragma once

#include <gateway/pg/catalog/catalog.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace fencegate::pg {

/// Whether an error after which the session can't be used is thrown as session_lost, or returned as the statement's
/// answer.
enum class unusable_session { throws, answers };

/// Everything that the write path needs of a connection to PostgreSQL. It reaches the server in no other way, so that a
/// test can let each message fail.
///
/// Errors:  throws statement_failed where PostgreSQL refused, session_lost where the connection
///          broke or none can be made.
/// Threads: not safe; used by one worker.
class write_session {
  public:
    virtual ~write_session() = default;

    /// Prepares the statement and returns its name; see session::prepare.
    virtual std::string prepare(const std::string& sql) = 0;
    /// Whether prepare() would send nothing.
    virtual bool is_prepared(const std::string& sql) const = 0;
    /// Runs prepared statements in one round trip; see session::run.
    virtual round_trip run(std::span<const prepared_call> calls, unusable_session unusable) = 0;
    /// Runs one statement without parameters.
    virtual void command(const std::string& sql) = 0;
    /// Whether a transaction is open in which no statement failed. Throws session_lost as the others do.
    virtual bool in_transaction() = 0;
    /// Records that a function of an application is about to run.
    virtual void mark_user_code_executed() = 0;

    /// Replaces the session by a new one.
    virtual void connect() = 0;
    /// Ends the session, and so its transaction.
    virtual void drop() = 0;
    /// Whether another thread cut the connection of this work.
    virtual bool was_cut() const = 0;
    /// Records that COMMIT is about to be sent; throws session_lost where the connection was cut before. See
    /// session_slot.
    virtual void begin_commit() = 0;
    /// Records that a transaction begins; see session_slot.
    virtual void begin_transaction() = 0;

    /// Whether the session has served an earlier job; see session::is_reused.
    virtual bool is_reused() const = 0;
    /// Returns when the session was ready; see session_slot.
    virtual std::chrono::steady_clock::time_point connected_since() const = 0;
    /// Sets the time after which the connection is cut if no answer has arrived; see session_slot.
    virtual void expect_answer_by(deadline until) = 0;

    virtual const postgres_config& settings() const = 0;
};

/// Runs one statement in a round trip of its own. Throws statement_failed, session_lost.
inline answer_rows run_statement(write_session& session, const std::string& sql, const compat::parameters& values) {
    const prepared_call call{session.prepare(sql), &values};
    auto trip = session.run({&call, 1}, unusable_session::answers);
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
template <class Work>
auto retry_once(write_session& session, Work work) {
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

/// A worker's session with the interface for the write path.
class slot_write_session final : public write_session {
  public:
    explicit slot_write_session(session_slot& slot) : slot_(slot) {}

    std::string prepare(const std::string& sql) override { return slot_.get().prepare(sql); }
    bool is_prepared(const std::string& sql) const override { return slot_.is_prepared(sql); }
    round_trip run(std::span<const prepared_call> calls, unusable_session unusable) override {
        return slot_.get().run(
            calls, unusable == unusable_session::answers ? statement_errors::all : statement_errors::usable_session);
    }
    void command(const std::string& sql) override { slot_.get().command(sql); }
    bool in_transaction() override { return slot_.get().in_transaction(); }
    void mark_user_code_executed() override { slot_.get().mark_user_code_executed(); }
    void connect() override { slot_.connect(); }
    void drop() override { slot_.drop(); }
    bool was_cut() const override { return slot_.was_cut(); }
    void begin_commit() override { slot_.begin_commit(); }
    void begin_transaction() override { slot_.begin_transaction(); }
    bool is_reused() const override { return slot_.is_reused(); }
    std::chrono::steady_clock::time_point connected_since() const override { return slot_.connected_since(); }
    void expect_answer_by(deadline until) override { slot_.expect_answer_by(until); }
    const postgres_config& settings() const override { return slot_.settings(); }

  private:
    session_slot& slot_;
};

/// The source of the catalog for the write path. Its functions throw as write_session's do.
class catalog_source {
  public:
    virtual ~catalog_source() = default;
    virtual std::shared_ptr<const catalog> get() = 0;
    /// Returns the catalog after a name was not found in `seen`; see catalog_store::refresh.
    virtual std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) = 0;
    /// Returns the catalog after a statement built from `seen` was refused, or null; see catalog_store::refresh_since.
    virtual std::shared_ptr<const catalog> refresh_since(const std::shared_ptr<const catalog>& seen,
                                                         std::chrono::steady_clock::time_point moment) = 0;
};

/// The catalog that all workers share, read with a worker's session.
class slot_catalog final : public catalog_source {
  public:
    slot_catalog(session_slot& slot, catalog_store& catalogs) : slot_(slot), catalogs_(catalogs) {}

    std::shared_ptr<const catalog> get() override { return catalogs_.get(slot_.get()); }
    std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) override {
        return catalogs_.refresh(slot_.get(), seen);
    }
    std::shared_ptr<const catalog> refresh_since(const std::shared_ptr<const catalog>& seen,
                                                 std::chrono::steady_clock::time_point moment) override {
        return catalogs_.refresh_since(slot_.get(), seen, moment);
    }

  private:
    session_slot& slot_;
    catalog_store& catalogs_;
};

}  // namespace fencegate::pg
