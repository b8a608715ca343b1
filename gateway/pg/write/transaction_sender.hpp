#pragma once

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/write/transaction_run.hpp>

#include <optional>
#include <utility>
#include <vector>

namespace fencegate::pg {

/// Sends the writes of one transaction, shared or isolated, up to COMMIT.
class transaction_sender {
  public:
    transaction_sender(write_session& session, memory_budget& answers, transaction_options options, deadline until)
        : session_(session),
          answers_(answers),
          options_(options),
          unusable_(options_.isolated ? unusable_session::answers : unusable_session::throws),
          until_(until) {
        session.begin_transaction();
    }

    /// Plans and sends the transaction, once more on a new session where the first was lost or has outdated statements,
    /// because nothing is committed yet. An isolated write is sent again only if no function was executed, which may have
    /// done what no rollback undoes: where the session was lost, if no step was answered.
    transcript send(const std::vector<planned_write>& writes, transaction_plan& plan) {
        for (;;) {
            plan = plan_transaction(writes, options_);
            transcript seen;
            try {
                execute(session_, plan, writes, answers_, unusable_, until_, seen);
                const bool again = seen.error && is_outdated_statement(*seen.error) && !session_.was_cut() &&
                                   !(options_.isolated && executed_user_code(plan, seen));
                if (!again || std::exchange(retried_, true)) return seen;
                if (seen.sent) roll_back(session_);
                session_.connect();
            } catch (const session_lost&) {
                if (options_.isolated && !seen.answers.empty()) throw;
                reconnect_once();
            }
        }
    }

    /// Replaces the lost session, at most once. Called from a handler of session_lost; rethrows it where the session
    /// may not be replaced.
    void reconnect_once() {
        if (session_.was_cut() || std::exchange(retried_, true)) throw;
        session_.connect();
    }

    /// Keeps the outcomes of writes that have a key, in the transaction of these writes alone.
    ///
    /// Out: empty, or the refusal of PostgreSQL.
    std::optional<write_refusal> keep(const std::vector<outcome_to_keep>& outcomes) {
        if (!session_.in_transaction()) throw session_lost("the transaction of the writes is not open any more");
        const auto plan = plan_kept_outcomes(outcomes, options_.isolated);
        transcript seen;
        execute(session_, plan, {}, answers_, unusable_, until_, seen);
        if (!seen.error) return std::nullopt;
        if (options_.isolated) log_for_operator(*seen.error);
        return refuse_for_error(*seen.error, &plan.steps[seen.failed]);
    }

    /// Whether the transaction was sent again on a new session.
    bool was_repeated() const { return retried_; }
    transaction_options& options() { return options_; }
    deadline until() const { return until_; }
    write_session& session() { return session_; }

  private:
    write_session& session_;
    memory_budget& answers_;
    transaction_options options_;
    unusable_session unusable_;
    deadline until_;
    bool retried_ = false;
};

}  // namespace fencegate::pg
