#pragma once

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/job.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace fencegate::pg {

/// Runs `work` on a session and turns exceptions into failures. `changes`: the work may change something, so that a
/// lost connection leaves the outcome unknown.
template <class T, class Session, class Work>
result<T> attempt(Session& session, bool changes, Work&& work) {
    try {
        return work(session);
    } catch (const session_lost& lost) {
        session.drop();
        if (!changes) return unavailable_because(lost.cause);
        failure out = unavailable("The connection to PostgreSQL broke; whether the change was made is not known.");
        out.outcome_unknown = true;
        return out;
    } catch (const statement_failed& e) {
        log_for_operator(e.error);
        return to_failure(e.error);
    } catch (const std::exception& e) {
        session.drop();
        spdlog::error("an answer of PostgreSQL could not be read: {}", e.what());
        failure out = make_failure(errc::internal_error, "The gateway could not read PostgreSQL's answer.");
        out.outcome_unknown = changes;
        return out;
    }
}

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

/// A piece of work on a session, and the caller that waits for its result.
template <class T>
class session_job final : public job {
  public:
    using work = std::function<result<T>(session_slot&)>;

    session_job(deadline until, bool changes, std::string principal, work run,
                std::shared_ptr<caller_awaiting<T>> caller)
        : job(until),
          changes_(changes),
          principal_(std::move(principal)),
          run_(std::move(run)),
          caller_(std::move(caller)) {}

    void run(session_slot& slot) noexcept override { caller_->answer(attempt<T>(slot, changes_, run_)); }
    void refuse(failure why) noexcept override { caller_->answer(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return caller_; }
    const std::string& principal() const override { return principal_; }

  private:
    bool changes_;
    std::string principal_;
    work run_;
    std::shared_ptr<caller_awaiting<T>> caller_;
};

/// Whether work on a session may change something, so that a lost connection leaves its outcome unknown.
enum class work_kind { reads, changes };

/// Waits for the result of work that `submit` passes to a worker. `principal`: as job::principal.
template <class T, class Submit>
boost::asio::awaitable<result<T>> await_work(work_kind kind, deadline until, typename session_job<T>::work work,
                                             Submit submit, std::string principal = {}) {
    const bool changes = kind == work_kind::changes;
    auto submit_job = [until, changes, principal = std::move(principal), work = std::move(work),
                       submit = std::move(submit)](std::shared_ptr<caller_awaiting<T>> caller) mutable {
        submit(
            std::make_unique<session_job<T>>(until, changes, std::move(principal), std::move(work), std::move(caller)));
    };
    return await_reply<T>(changes ? effect::by_statement : effect::none, std::move(submit_job));
}

}  // namespace fencegate::pg
