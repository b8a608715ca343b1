#pragma once

#include <gateway/config/config.hpp>
#include <gateway/pg/connection/session.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace fencegate::pg {

using deadline = std::chrono::steady_clock::time_point;

/// How long a server may be silent beyond a call's deadline before the connection is cut and the caller is answered.
/// statement_timeout ends a statement in time; this is for a server that is stopped or unreachable, on which libpq
/// would wait for ever.
inline constexpr std::chrono::milliseconds silence_max{500};
inline constexpr std::chrono::milliseconds reconnect_backoff_min{50};
inline constexpr std::chrono::milliseconds reconnect_backoff_max{500};

/// What callers are told of such a server.
inline constexpr const char* silent_cause = "PostgreSQL does not answer";

/// A worker's place for its session: builds a new one when the old one is lost, not too often, and lets another thread
/// cut a connection that does not answer.
///
/// Threads: not safe, but for cut_if_overdue() and surely_unchanged().
class session_slot {
  public:
    explicit session_slot(const postgres_config& cfg) : cfg_(cfg) {}

    /// The session, a new one if need be. Throws session_lost where none can be had; then no connection is tried before
    /// retry_at().
    session& get();

    /// As get(), without regard to the back-off.
    session& connect();

    /// As connect(), with no work at hand: each server that the connection string names has its connect_timeout, and
    /// the one that took the connection as long again to answer.
    session& connect_idle();

    /// Ends the session.
    void drop();

    /// Between two pieces of work: drops a session that was lost, or that the server has closed while it was idle, and
    /// takes away what an application's function has left in it.
    void tidy();

    bool connected() const { return session_ != nullptr; }
    /// When the session was ready. What the server has done since then, it has done without a crash in between, as long
    /// as the session answers.
    std::chrono::steady_clock::time_point connected_since() const { return connected_since_; }
    std::chrono::steady_clock::time_point retry_at() const { return retry_at_; }
    const postgres_config& settings() const { return cfg_; }

    /// What the last attempt in vain said, as a clause for callers.
    const std::string& cause() const { return cause_; }

    /// Work begins that is to be answered by `until`; see expect_answer_by.
    void begin_work(deadline until);

    /// COMMIT is about to be sent. Throws session_lost, and it must not be sent, where the connection was cut before.
    void begin_commit();
    /// It is known what became of the commit, or given up.
    void end_commit();

    /// Whether the work's connection was cut.
    bool was_cut() const;

    /// Whether the work under way was cut off at a moment when no commit was on its way: none follows, and whoever
    /// waits for it may be told that nothing was changed.
    bool surely_unchanged() const;

    /// From now on until the next call of it, the connection is to be cut when `until` has passed by silence_max.
    void expect_answer_by(deadline until);
    void expect_nothing();

    /// Shuts the socket down if an answer is overdue; the worker's blocking call then fails as on any broken
    /// connection.
    bool cut_if_overdue(std::chrono::steady_clock::time_point now);

  private:
    session& make(bool idle);

    const postgres_config& cfg_;
    std::unique_ptr<session> session_;
    std::chrono::steady_clock::time_point retry_at_{};
    std::chrono::steady_clock::time_point connected_since_{};
    std::chrono::milliseconds backoff_{reconnect_backoff_min};

    std::string cause_ = "PostgreSQL can't be reached";

    mutable std::mutex
        watched_;  ///< Keeps the socket from being closed, and its number from being used anew, while it is cut.
    int socket_ = -1;
    deadline overdue_at_ = deadline::max();
    bool committing_ = false;
    enum class cut { no, before_commit, in_commit } cut_ = cut::no;
};

/// Runs `work` with the slot's session, and once more with a new one where the first was lost: for work that may be
/// done twice.
template <class Work>
auto retry_once_on_disconnect(session_slot& slot, Work work) {
    try {
        return work(slot.get());
    } catch (const session_lost&) {
        if (slot.was_cut()) throw;
        return work(slot.connect());
    }
}

}  // namespace fencegate::pg
