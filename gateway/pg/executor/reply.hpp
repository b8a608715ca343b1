#pragma once

#include <gateway/domain/failure.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
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

/// Returns the failure of work during which PostgreSQL stopped responding. `unchanged`: nothing was changed; else the
/// outcome is unknown.
failure unresponsive_failure(bool unchanged);

/// The effect of work whose connection was cut.
enum class effect {
    none,          ///< Nothing was changed.
    by_statement,  ///< Unknown: each statement commits by itself.
    by_commit      ///< Nothing was changed unless COMMIT was sent.
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

}  // namespace fencegate::pg
