#pragma once

#include <gateway/pg/connection/session_slot.hpp>
#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/reply.hpp>
#include <gateway/pg/executor/worker.hpp>

#include <spdlog/spdlog.h>
#include <boost/asio/awaitable.hpp>

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
