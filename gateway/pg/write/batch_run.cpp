#include <gateway/pg/write/commit_resolver.hpp>
#include <gateway/pg/write/transaction_run.hpp>
#include <gateway/pg/write/transaction_sender.hpp>

#include <spdlog/spdlog.h>
#include <lockcore/invariant.hpp>

#include <algorithm>
#include <utility>

namespace fencegate::pg {
namespace {

/// Runs a shared transaction, until the writes that stay in it are committed.
class batch_run {
  public:
    batch_run(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
              const batch_options& options)
        : writes_(writes), batch_options_(options), run_(session, answers, first_options(options), until) {
        for (std::size_t i = 0; i < writes.size(); ++i) {
            planned_.push_back(std::move(writes[i].write));
            places_.push_back(i);
        }
        limit_time(shared_statement_timeout);
    }

    void perform() {
        try {
            while (!planned_.empty()) {
                transaction_plan plan;
                auto seen = run_.send(planned_, plan);
                auto verdict = evaluate_batch(plan, planned_, seen);
                if (verdict.complete) {
                    if (finish(verdict.outcomes)) return;
                    continue;
                }
                if (seen.sent) roll_back(run_.session());
                apply(verdict);
                if (seen.error && planned_.empty() && !plan.steps[seen.failed].write)
                    spdlog::warn("writes could not share a transaction: {} {}", seen.error->sqlstate,
                                 seen.error->message);
            }
        } catch (const session_lost& lost) {
            answer_all(unavailable_because(lost.cause));
        }
    }

  private:
    static transaction_options first_options(const batch_options& options) {
        transaction_options out;
        out.defer_flush = options.defer_flush;
        out.known = options.known.get();
        out.refused = options.refused;
        return out;
    }

    void limit_time(std::chrono::milliseconds limit) {
        const auto& settings = run_.session().settings();
        run_.options().statement_timeout = std::min(limit, settings.statement_timeout);
        run_.options().lock_timeout = std::min(limit, settings.lock_timeout);
    }

    void apply(const batch_verdict& verdict) {
        if (verdict.waited) limit_time(reduced_statement_timeout);
        if (verdict.separate_guards) run_.options().join_guards = false;
        if (verdict.separate_updates) run_.options().join_updates = false;
        if (verdict.separate_turns) separate_turns();
        for (const auto& shape : verdict.refused_shapes) {
            spdlog::warn("updates of several writes can't be joined into one statement: {}", shape);
            batch_options_.refused->add(shape);
        }
        std::vector<planned_write> staying;
        std::vector<std::size_t> places;
        for (std::size_t i = 0; i < planned_.size(); ++i) {
            if (verdict.changes[i] == batch_change::stays) {
                staying.push_back(std::move(planned_[i]));
                places.push_back(places_[i]);
            } else if (verdict.waited) {
                writes_[places_[i]].status = batch_result::waited;
            }
        }
        planned_ = std::move(staying);
        places_ = std::move(places);
    }

    /// Keeps outcomes and commits.
    ///
    /// Out: false where the writes have to run again: the session was lost before COMMIT and replaced by a new one, or
    ///      see commit().
    bool finish(std::vector<write_outcome>& outcomes) {
        try {
            if (!keep(outcomes)) return true;
        } catch (const session_lost&) {
            run_.reconnect_once();
            return false;
        }
        return commit();
    }

    void separate_turns() {
        run_.options().separate_turns = true;
        run_.options().join_updates = false;
    }

    /// Keeps the outcomes of the writes.
    ///
    /// Out: false where PostgreSQL refused and does not say which write is the cause.
    bool keep(std::vector<write_outcome>& outcomes) {
        LOCKCORE_INVARIANT(outcomes.size() == planned_.size());
        std::vector<outcome_to_keep> kept;
        for (std::size_t i = 0; i < planned_.size(); ++i) {
            auto& answer = writes_[places_[i]].answer;
            answer = std::move(outcomes[i]);
            const auto* request = planned_[i].request;
            if (request->key) kept.push_back({request, kept_text(*request, *answer)});
        }
        if (kept.empty() || !run_.keep(kept)) return true;
        roll_back(run_.session());
        return false;
    }

    /// Out: false where PostgreSQL refused and the writes have to run again, to see which of them is the cause.
    bool commit() {
        const auto& first = planned_.front();
        std::optional<failure> failed;
        try {
            failed = failure_of(commit_write(run_.session(), first.request->write_id, first.resource(), run_.until()));
        } catch (const statement_failed& e) {
            if (planned_.size() == 1 || run_.options().separate_turns) return true;  // all are tried again isolated
            if (is_timeout_or_deadlock(e.error.sqlstate)) limit_time(reduced_statement_timeout);
            run_.session().begin_transaction();
            separate_turns();
            return false;
        }
        if (failed) {
            answer_all(*failed);
            return true;
        }
        for (const auto place : places_)
            writes_[place].status = batch_options_.defer_flush ? batch_result::committed : batch_result::answered;
        return true;
    }

    void answer_all(const failure& why) {
        for (const auto place : places_) {
            writes_[place].answer = why;
            writes_[place].status = batch_result::answered;
        }
    }

    std::vector<batch_write>& writes_;
    const batch_options& batch_options_;
    transaction_sender run_;
    std::vector<planned_write> planned_;  ///< The writes that are still in the transaction.
    std::vector<std::size_t> places_;     ///< Their indexes in writes_.
};

}  // namespace

void run_batch(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
               const batch_options& options) {
    batch_run(session, answers, writes, until, options).perform();
}

}  // namespace fencegate::pg
