#pragma once

#include <gateway/domain/failure.hpp>
#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
    std::atomic<const void*> responsible{nullptr};
};

/// A caller that waits for a result of type T.
template <class T>
class caller_awaiting : public waiting_caller {
  public:
    virtual void answer(result<T> value) noexcept = 0;
    /// Returns the executor on which the caller resumes.
    virtual boost::asio::any_io_executor executor() const = 0;
};

/// Returns the failure of work during which PostgreSQL stopped responding. `unchanged`: nothing was changed; else the
/// outcome is unknown.
failure unresponsive_failure(bool unchanged);

/// What work whose connection broke has changed.
enum class effect {
    none,          ///< Nothing.
    by_statement,  ///< That is unknown: each statement commits by itself.
    by_commit      ///< Nothing, unless COMMIT was sent. The work itself finds out what its COMMIT did.
};

/// A coroutine that waits for a result. The answer may come from any thread and is posted to the coroutine's executor;
/// the first answer counts.
template <class T, class Handler>
class reply final : public caller_awaiting<T> {
  public:
    reply(effect work_effect, Handler handler)
        : effect_(work_effect),
          executor_(boost::asio::prefer(boost::asio::get_associated_executor(handler),
                                        boost::asio::execution::outstanding_work.tracked)),
          handler_(std::move(handler)) {}

    void answer(result<T> value) noexcept override {
        if (answered_.exchange(true)) return;
        boost::asio::post(executor_, [handler = std::move(handler_), value = std::move(value)]() mutable {
            std::move(handler)(std::move(value));
        });
    }

    void give_up(bool unchanged) noexcept override {
        answer(unresponsive_failure(effect_ == effect::none || (effect_ == effect::by_commit && unchanged)));
    }

    boost::asio::any_io_executor executor() const override { return executor_; }

  private:
    using outstanding_executor =
        decltype(boost::asio::prefer(boost::asio::get_associated_executor(std::declval<const Handler&>()),
                                     boost::asio::execution::outstanding_work.tracked));

    effect effect_;
    std::atomic<bool> answered_{false};
    outstanding_executor executor_;
    Handler handler_;
};

/// Waits for the answer to the std::shared_ptr<caller_awaiting<T>> that `submit` gets. The answer is posted, so that
/// `submit` may answer before it returns.
template <class T, class Submit>
boost::asio::awaitable<result<T>> await_reply(effect work_effect, Submit submit) {
    auto initiate = [work_effect](auto handler, Submit start) {
        using handler_type = decltype(handler);
        start(std::make_shared<reply<T, handler_type>>(work_effect, std::move(handler)));
    };
    return boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void(result<T>)>(
        std::move(initiate), boost::asio::use_awaitable, std::move(submit));
}

/// One check on behalf of all who ask for it while it is under way, and of those who ask soon afterwards.
///
/// Threads: any.
class shared_check {
  public:
    using caller_ptr = std::shared_ptr<caller_awaiting<void>>;

    /// `reuse_time`: for how long the result of a check answers further callers.
    explicit shared_check(std::chrono::milliseconds reuse_time) : reuse_time_(reuse_time) {}

    /// Answers `caller` with the result of the check that is under way or has just ended. If there is none, calls
    /// `begin`, which has to answer its argument.
    void ask(caller_ptr caller, const std::function<void(caller_ptr)>& begin);

  private:
    class round;

    const std::chrono::milliseconds reuse_time_;
    std::mutex mutex_;
    std::shared_ptr<round> latest_;
};

/// A piece of work on a session, and the caller that waits for its answer. It is either run or refused, once.
class job {
  public:
    explicit job(deadline until) : until_(until) {}
    virtual ~job() = default;
    job(const job&) = delete;
    job& operator=(const job&) = delete;

    /// Does the work of this job and of those that have joined its batch (joins_batch), and answers.
    virtual void run(session_slot& slot, std::span<const std::unique_ptr<job>> joined) noexcept = 0;
    /// Answers with a failure; the work did not begin.
    virtual void refuse(failure why) noexcept = 0;

    /// Returns the caller, which is answered at the deadline even if the worker is blocked. Null: the caller waits
    /// until the worker is done.
    virtual std::shared_ptr<waiting_caller> caller() const { return nullptr; }

    /// The principal whose request this is; empty: the gateway itself. Valid until run() or refuse().
    virtual const std::string& principal() const;

    /// Whether a worker may run this job together with others that return true; those of one worker are of one class.
    virtual bool joins_batch() const { return false; }

    deadline until() const { return until_; }

    std::shared_ptr<void> ticket{};  ///< Leaves a queue when the job is destroyed.

  private:
    deadline until_;
};

/// Returns the failure of work that did not begin before its deadline.
failure deadline_passed_failure();
/// Returns the failure of work for which a queue is full.
failure queue_full_failure();

/// Work that a worker runs together with all work of its kind that waits, up to jobs_max.
///
/// In: `Work` has `until`, `caller` (a shared_ptr to the waiting caller, or empty), refuse(failure) noexcept and,
///     unless it is work of the gateway itself, principal().
///     `Owner::run_batch(session_slot&, std::vector<Work>)` answers all work of its batch; work whose deadline has
///     passed is not in it.
template <class Owner, class Work>
class batched_job final : public job {
  public:
    batched_job(Owner& owner, Work work) : job(work.until), owner_(owner), work_(std::move(work)) {}

    void run(session_slot& slot, std::span<const std::unique_ptr<job>> joined) noexcept override {
        std::vector<Work> batch;
        batch.reserve(1 + joined.size());
        batch.push_back(std::move(work_));
        for (const auto& each : joined)
            batch.push_back(std::move(static_cast<batched_job&>(*each).work_));
        owner_.run_batch(slot, std::move(batch));
    }
    void refuse(failure why) noexcept override { work_.refuse(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return work_.caller; }
    const std::string& principal() const override {
        if constexpr (requires { work_.principal(); }) return work_.principal();
        return job::principal();
    }
    bool joins_batch() const override { return true; }

  private:
    Owner& owner_;
    Work work_;
};

/// Returns the failure of work whose session was lost.
failure lost_failure(const session_lost& lost, effect work_effect);
/// Returns the failure of work to which PostgreSQL's answer could not be read, and logs the cause.
failure unreadable_failure(const std::exception& cause, effect work_effect);

/// Runs `work` on a session and turns exceptions into failures.
template <class T, class Session, class Work>
result<T> attempt(Session& session, effect work_effect, Work&& work) {
    try {
        return work(session);
    } catch (const session_lost& lost) {
        session.drop();
        return lost_failure(lost, work_effect);
    } catch (const statement_failed& e) {
        log_for_operator(e.error);
        return to_failure(e.error);
    } catch (const std::exception& e) {
        session.drop();
        return unreadable_failure(e, work_effect);
    }
}

/// A piece of work on a session, and the caller that waits for its result.
template <class T>
class session_job final : public job {
  public:
    using work = std::function<result<T>(session_slot&)>;

    session_job(deadline until, effect work_effect, std::string principal, work run,
                std::shared_ptr<caller_awaiting<T>> caller)
        : job(until),
          effect_(work_effect),
          principal_(std::move(principal)),
          run_(std::move(run)),
          caller_(std::move(caller)) {}

    void run(session_slot& slot, std::span<const std::unique_ptr<job>> /*joined*/) noexcept override {
        caller_->answer(attempt<T>(slot, effect_, run_));
    }
    void refuse(failure why) noexcept override { caller_->answer(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return caller_; }
    const std::string& principal() const override { return principal_; }

  private:
    effect effect_;
    std::string principal_;
    work run_;
    std::shared_ptr<caller_awaiting<T>> caller_;
};

/// Waits for the result of work that `submit` passes to a worker. `principal`: as job::principal.
template <class T, class Submit>
boost::asio::awaitable<result<T>> await_work(effect work_effect, deadline until, typename session_job<T>::work work,
                                             Submit submit, std::string principal = {}) {
    auto submit_job = [until, work_effect, principal = std::move(principal), work = std::move(work),
                       submit = std::move(submit)](std::shared_ptr<caller_awaiting<T>> caller) mutable {
        submit(std::make_unique<session_job<T>>(until, work_effect, std::move(principal), std::move(work),
                                                std::move(caller)));
    };
    return await_reply<T>(work_effect, std::move(submit_job));
}

}  // namespace fencegate::pg
