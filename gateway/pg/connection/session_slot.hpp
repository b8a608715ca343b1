#pragma once

#include <gateway/pg/connection/write_session.hpp>

#include <lockcore/types.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace fencegate::pg {

/// How long a server may be silent beyond a call's deadline before the connection is cut and the caller is answered.
/// statement_timeout ends a statement in time; this is for a server that is stopped or unreachable, on which libpq
/// would wait for ever.
inline constexpr std::chrono::milliseconds silence_max{500};
inline constexpr std::chrono::milliseconds reconnect_backoff_min{50};
inline constexpr std::chrono::milliseconds reconnect_backoff_max{500};

/// The cause that callers are given for such a server, as a clause.
inline constexpr const char* unresponsive_cause = "PostgreSQL does not answer";

/// Holds a worker's session: makes a new session when the old one is lost, with a growing pause between failed
/// attempts, and lets another thread cut a connection that does not answer.
///
/// Threads: not safe, except cut_if_overdue() and known_not_committed().
class session_slot final : public write_session {
  public:
    explicit session_slot(const postgres_config& cfg) : cfg_(cfg) {}

    /// Makes every slot of this process connect anew, and refuse servers whose floor is lower: they were replaced
    /// (docs/protocol.md, STORAGE GENERATION). A process has one database. Threads: any.
    ///
    /// Out: whether the floor is higher than every earlier one.
    static bool require_floor(lockcore::epoch floor);
    /// Makes every slot of this process connect anew: another server may have become the one that accepts writes.
    static void renew_all();

    /// Returns the session, a new one if there is none or the old one is outdated. Throws session_lost where none can
    /// be made; then no attempt to connect follows before retry_at(). Throws it too where the old one is outdated and
    /// has a transaction open, which ends: its later statements must not run outside it, on another session.
    session& get();

    /// Whether the session was made before the last renew_all() or the newest floor: its server may have been replaced.
    bool is_outdated() const;

    /// Makes a new session: each server that the connection string names has its connect_timeout, and the server that
    /// accepted has as long again to answer, however late the work under way is. Throws as get() does.
    void connect() override;

    void drop() override;

    std::string prepare(const std::string& sql) override { return get().prepare(sql); }
    round_trip run(std::span<const prepared_call> calls, statement_errors returned) override {
        return get().run(calls, returned);
    }
    void command(const std::string& sql) override { get().command(sql); }
    bool in_transaction() override { return get().in_transaction(); }
    void mark_user_code_executed() override { get().mark_user_code_executed(); }

    /// Prepares the session for the next job: drops a session that was lost or that the server closed while it was
    /// idle, and resets what a function of an application left in it.
    void reset_between_jobs();

    bool connected() const { return session_ != nullptr; }
    bool is_prepared(const std::string& sql) const override { return session_ && session_->is_prepared(sql); }
    bool is_reused() const override { return session_ && session_->is_reused(); }
    std::chrono::steady_clock::time_point connected_since() const override { return connected_since_; }
    std::chrono::steady_clock::time_point retry_at() const { return retry_at_; }
    const postgres_config& settings() const override { return cfg_; }

    /// Returns the cause of the last failed attempt to connect, as a clause for callers.
    const std::string& cause() const { return cause_; }

    /// Begins work that has to be answered by `until`; see expect_answer_by.
    void begin_work(deadline until);

    void begin_commit() override;
    void begin_transaction() override;

    bool was_cut() const override;

    /// Whether the connection of the work under way was cut before COMMIT was sent. No COMMIT follows then, and its
    /// answers may say that nothing was changed.
    bool known_not_committed() const;

    void expect_answer_by(deadline until) override;
    /// Records that no answer is expected.
    void expect_nothing();

    /// Shuts the socket down if an answer is overdue; the worker's blocking call then fails as on any broken
    /// connection.
    ///
    /// Out: whether it did.
    bool cut_if_overdue(std::chrono::steady_clock::time_point now);

  private:
    void check_server();

    static std::atomic<std::uint64_t> newest_floor_, renewals_;

    const postgres_config& cfg_;
    std::unique_ptr<session> session_;
    std::uint64_t made_at_ = 0;  ///< renewals_ when the session was made.
    std::chrono::steady_clock::time_point retry_at_{};
    std::chrono::steady_clock::time_point connected_since_{};
    std::chrono::milliseconds backoff_{reconnect_backoff_min};

    std::string cause_ = "PostgreSQL can't be reached";

    /// Guards the members below; while it is held the socket is not closed, so that its number is not reused.
    mutable std::mutex mutex_;
    int socket_ = -1;
    deadline overdue_at_ = deadline::max();
    bool committing_ = false;
    enum class cut { no, before_commit, in_commit } cut_ = cut::no;
};

/// Runs `work` with the slot's session, as retry_once does.
template <class Work>
auto retry_once_on_new_session(session_slot& slot, Work work) {
    return retry_once(slot, [&work](session_slot& used) { return work(used.get()); });
}

}  // namespace fencegate::pg
