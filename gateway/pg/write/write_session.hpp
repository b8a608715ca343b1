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

/// Whether an error that leaves the session of no further use is the statement's answer, or a lost session.
enum class unusable_session { throws, answers };

/// All that the write path asks of a connection to PostgreSQL. It knows no other way to a server, so that a test can
/// let each message fail.
///
/// Errors:  statement_failed where PostgreSQL refused, session_lost where the connection broke or none can be had.
/// Threads: not safe; one worker's.
class write_session {
  public:
    virtual ~write_session() = default;

    /// Gives the name of the prepared statement; see session::prepare.
    virtual std::string prepare(const std::string& sql) = 0;
    /// Runs prepared statements in one round trip; see session::run.
    virtual round_trip run(std::span<const prepared_call> calls, unusable_session unusable) = 0;
    /// Runs one statement without parameters.
    virtual void command(const std::string& sql) = 0;
    /// Whether a transaction is open in which nothing has failed.
    virtual bool in_transaction() = 0;
    /// A function of an application is about to run.
    virtual void mark_user_code_executed() = 0;

    /// Replaces the session by a new one.
    virtual void connect() = 0;
    /// Ends the session, and so its transaction.
    virtual void drop() = 0;
    /// Where the last attempt to connect was in vain and the next is not due yet: what it said.
    virtual std::optional<std::string> away_cause() const = 0;
    /// Whether another thread cut the connection of this work.
    virtual bool was_cut() const = 0;
    /// COMMIT is about to be sent; throws session_lost where the connection was cut before. See session_slot.
    virtual void begin_commit() = 0;
    virtual void end_commit() = 0;

    /// When the session was ready; see session_slot.
    virtual std::chrono::steady_clock::time_point connected_since() const = 0;
    /// The connection is cut when no answer came by then; see session_slot.
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

/// Runs `work` on the session, and once more on a new one where the first was lost: for work that may be done twice.
template <class Work>
auto retry_once(write_session& session, Work work) {
    try {
        return work(session);
    } catch (const session_lost&) {
        if (session.was_cut()) throw;
        session.connect();
        return work(session);
    }
}

/// A worker's session as the write path sees it.
class slot_write_session final : public write_session {
  public:
    explicit slot_write_session(session_slot& slot) : slot_(slot) {}

    std::string prepare(const std::string& sql) override { return slot_.get().prepare(sql); }
    round_trip run(std::span<const prepared_call> calls, unusable_session unusable) override {
        return slot_.get().run(
            calls, unusable == unusable_session::answers ? statement_errors::all : statement_errors::usable_session);
    }
    void command(const std::string& sql) override { slot_.get().command(sql); }
    bool in_transaction() override { return slot_.get().in_transaction(); }
    void mark_user_code_executed() override { slot_.get().let_application_in(); }
    void connect() override { slot_.connect(); }
    void drop() override { slot_.drop(); }
    std::optional<std::string> away_cause() const override {
        if (slot_.connected() || std::chrono::steady_clock::now() >= slot_.retry_at()) return std::nullopt;
        return slot_.cause();
    }
    bool was_cut() const override { return slot_.was_cut(); }
    void begin_commit() override { slot_.begin_commit(); }
    void end_commit() override { slot_.end_commit(); }
    std::chrono::steady_clock::time_point connected_since() const override { return slot_.connected_since(); }
    void expect_answer_by(deadline until) override { slot_.expect_answer_by(until); }
    const postgres_config& settings() const override { return slot_.settings(); }

  private:
    session_slot& slot_;
};

/// Where the write path gets the catalog. Throws what write_session throws.
class catalog_source {
  public:
    virtual ~catalog_source() = default;
    virtual std::shared_ptr<const catalog> get() = 0;
    /// The catalog after `seen` did not fit; see catalog_store::refresh.
    virtual std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) = 0;
};

/// The catalog that all workers share, read by a worker's session.
class slot_catalog final : public catalog_source {
  public:
    slot_catalog(session_slot& slot, catalog_store& catalogs) : slot_(slot), catalogs_(catalogs) {}

    std::shared_ptr<const catalog> get() override { return catalogs_.get(slot_.get()); }
    std::shared_ptr<const catalog> refresh(const std::shared_ptr<const catalog>& seen) override {
        return catalogs_.refresh(slot_.get(), seen);
    }

  private:
    session_slot& slot_;
    catalog_store& catalogs_;
};

}  // namespace fencegate::pg
