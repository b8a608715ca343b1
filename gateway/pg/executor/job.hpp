#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::pg {

/// A caller that waits for a piece of work. The first answer counts.
class waiting_caller {
  public:
    virtual ~waiting_caller() = default;
    /// Answers that PostgreSQL did not respond within the call's time, if there was no answer yet. `unchanged`: the
    /// connection was cut before a commit was sent (session_slot::begin_commit).
    ///
    /// Threads: called from another thread than the worker's.
    virtual void give_up(bool unchanged) noexcept = 0;

    /// The worker that took the work last. A worker that has passed the work on must not call give_up.
    std::atomic<const void*> holder{nullptr};
};

/// A caller that waits for a result of type T.
template <class T>
class caller_awaiting : public waiting_caller {
  public:
    virtual void answer(result<T> value) noexcept = 0;
    /// Returns the executor on which the caller resumes.
    virtual boost::asio::any_io_executor executor() const = 0;
};

/// A piece of work on a session, and the caller that waits for its answer. Exactly one of run and refuse is called,
/// once.
class job {
  public:
    explicit job(deadline until) : until_(until) {}
    virtual ~job() = default;
    job(const job&) = delete;
    job& operator=(const job&) = delete;

    /// Does the work and answers; a job that joins a batch adds itself to the batch instead.
    virtual void run(session_slot& slot) noexcept = 0;
    /// Answers with a failure; the work did not begin.
    virtual void refuse(failure why) noexcept = 0;

    /// Returns the caller, which is answered at the deadline even if the worker is blocked. Null: the caller waits
    /// until the worker is done.
    virtual std::shared_ptr<waiting_caller> caller() const { return nullptr; }

    /// The principal whose request this is; empty: the gateway itself. Valid until run() or refuse().
    virtual const std::string& principal() const;

    /// Whether the worker runs this job in one batch with other such jobs.
    virtual bool joins_batch() const { return false; }

    deadline until() const { return until_; }

  private:
    deadline until_;
};

/// Returns the failure of work that did not begin before its deadline.
failure deadline_passed_failure();
/// Returns the failure of work for which a queue has no place left.
failure queue_full_failure();

/// Returns the failure of work during which PostgreSQL stopped responding. `unchanged`: nothing was changed; else the
/// outcome is unknown.
failure unresponsive_failure(bool unchanged);

}  // namespace fencegate::pg
