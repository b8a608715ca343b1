#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/session_slot.hpp>

#include <boost/asio/any_io_executor.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace fencegate::pg {

/// Whoever waits for a piece of work. The first answer counts.
class waiting_caller {
  public:
    virtual ~waiting_caller() = default;
    /// Answers that PostgreSQL was silent beyond the call's time, if there was no answer yet. `unchanged`: the
    /// connection was cut before a commit was sent (session_slot::begin_commit). Called from another thread than the
    /// worker's.
    virtual void give_up(bool unchanged) noexcept = 0;

    /// The worker that took the work last; one that has handed it on does not speak for it any more.
    std::atomic<const void*> holder{nullptr};
};

/// The same, with what it waits for.
template <class T>
class waiting_for : public waiting_caller {
  public:
    virtual void answer(result<T> value) noexcept = 0;
    /// On which it goes on.
    virtual boost::asio::any_io_executor executor() const = 0;
};

/// A piece of work on a session, and whoever waits for its answer. Exactly one of run and refuse is called, once.
class job {
  public:
    explicit job(deadline until) : until_(until) {}
    virtual ~job() = default;
    job(const job&) = delete;
    job& operator=(const job&) = delete;

    /// Does the work and answers; one that joins a batch adds itself to it instead.
    virtual void run(session_slot& slot) noexcept = 0;
    /// Answers without having begun.
    virtual void refuse(failure why) noexcept = 0;

    /// For an answer in time, whatever the worker is stuck in; none: it waits as long as that takes.
    virtual std::shared_ptr<waiting_caller> caller() const { return nullptr; }

    /// Whether its worker runs it together with others that say so.
    virtual bool joins_batch() const { return false; }

    deadline until() const { return until_; }

  private:
    deadline until_;
};

/// Refusals of work that has not begun: its time is over, or a queue is full.
failure too_late_failure();
failure full_failure();

/// What a caller is told whose work is under way when PostgreSQL falls silent.
failure silent_failure(bool unchanged);

}  // namespace fencegate::pg
