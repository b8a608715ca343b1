#include <gateway/pg/write/write_transaction.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/history/history_writer.hpp>

#include <spdlog/spdlog.h>
#include <lockcore/invariant.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

text_receiver* receiver_of(transcript& seen, std::size_t step) {
    const auto found = seen.texts.find(step);
    return found == seen.texts.end() ? nullptr : &found->second;
}

/// Returns the end of the round trip that begins with the step `begin`.
std::size_t end_of_round_trip(const write_session& session, const transaction_plan& plan, std::size_t begin) {
    auto end = begin;
    while (!plan.steps[end++].ends_round_trip) {
    }
    if (begin >= plan.prepared_with_timeouts) return end;
    bool all_prepared = true;
    for (auto i = plan.prepared_with_timeouts; i < end; ++i)
        all_prepared = all_prepared && session.is_prepared(*plan.steps[i].sql);
    return all_prepared ? end : plan.prepared_with_timeouts;
}

/// A write whose refusal is final (batch_change::refused).
struct refused_write {
    batch_write* result;  ///< Where its result goes.
    const write_request* request;
    write_refusal refusal;
};

/// A transaction of several writes, until those that stay in it are committed.
class shared_transaction {
  public:
    enum class progress {
        done,      ///< It was committed, or every write in it is to run isolated.
        run_again  ///< Nothing was changed, and the writes that are left have to run again.
    };

    shared_transaction(write_session& session, memory_budget& budget, std::vector<batch_write>& writes, deadline until,
                       const batch_options& options)
        : batch_options_(options), transaction_(session, budget, first_options(options), until) {
        for (auto& each : writes) {
            if (!each.write) continue;
            planned_.push_back(std::move(*each.write));
            results_.push_back(&each);
        }
        limit_time(shared_statement_timeout);
    }

    /// Runs the writes that are left, and commits them where all succeed.
    progress run() {
        if (planned_.empty()) return progress::done;
        transaction_plan plan;
        auto seen = transaction_.send(planned_, plan);
        auto verdict = evaluate_batch(plan, planned_, seen);
        if (verdict.complete) return keep_and_commit(verdict);
        if (seen.sent) roll_back(transaction_.session());
        adapt(verdict);
        if (seen.error && planned_.empty() && !plan.steps[seen.failed].write)
            spdlog::warn("writes could not share a transaction: {} {}", seen.error->sqlstate, seen.error->message);
        return progress::run_again;
    }

    /// Decides the outcome of the writes that are left.
    void fail_all(const failure& why) {
        for (auto* write : results_) {
            write->outcome = why;
            write->status = batch_result::decided;
        }
    }

    /// Decides the refused writes, after the history has their rows, as far as it takes them. Throws nothing: the other
    /// writes may be committed.
    void decide_refused() noexcept {
        if (refused_.empty()) return;
        const bool recorded = record_refusals();
        for (auto& [write, request, refusal] : refused_) {
            refusal.why.in_history = recorded;
            refusal.why.durability_unproven = !recorded || batch_options_.defer_flush;
            write->outcome = std::move(refusal.why);
            write->status = batch_result::decided;
        }
    }

  private:
    bool record_refusals() noexcept {
        try {
            std::vector<history_item> items;
            std::vector<outcome_to_keep> kept;
            for (auto& [write, request, refusal] : refused_) {
                items.push_back(failed_item(*request, refusal, std::chrono::system_clock::now()));
                if (request->key) kept.push_back({request, write_kept(*request, refusal.why)});
            }
            transaction_.record(items, kept);
            return true;
        } catch (const std::exception& e) {
            spdlog::warn("failures of {} writes may be missing from the history: {}", refused_.size(), e.what());
            transaction_.session().drop();
            return false;
        }
    }

    static transaction_options first_options(const batch_options& options) {
        transaction_options out;
        out.defer_flush = options.defer_flush;
        out.known = options.known.get();
        out.unjoinable = options.unjoinable;
        return out;
    }

    void limit_time(std::chrono::milliseconds limit) {
        const auto& settings = transaction_.session().settings();
        transaction_.options().statement_timeout = std::min(limit, settings.statement_timeout);
        transaction_.options().lock_timeout = std::min(limit, settings.lock_timeout);
    }

    /// Removes the writes that leave, and changes the options for those that run again.
    void adapt(batch_verdict& verdict) {
        if (verdict.waited) limit_time(reduced_statement_timeout);
        if (verdict.separate_guards) transaction_.options().join_guards = false;
        if (verdict.separate_updates) transaction_.options().join_updates = false;
        if (verdict.separate_checks) separate_checks();
        for (const auto& update : verdict.unjoinable) {
            spdlog::warn("updates of several writes can't be joined into one statement: {}", update);
            batch_options_.unjoinable->add(update);
        }
        for (std::size_t i = 0; i < planned_.size(); ++i) {
            if (verdict.changes[i] == batch_change::leaves) keep_token_for(planned_[i]);
        }
        std::vector<planned_write> staying;
        std::vector<batch_write*> results;
        for (std::size_t i = 0; i < planned_.size(); ++i) {
            const auto change = verdict.changes[i];
            planned_[i].presumed_refused = planned_[i].presumed_refused || change == batch_change::presumed_refused;
            if (stays(change)) {
                staying.push_back(std::move(planned_[i]));
                results.push_back(results_[i]);
            } else if (change == batch_change::refused) {
                add_refused(i, verdict);
            } else if (verdict.waited) {
                results_[i]->status = batch_result::waited;
            }
        }
        planned_ = std::move(staying);
        results_ = std::move(results);
    }

    static bool stays(batch_change change) { return change != batch_change::leaves && change != batch_change::refused; }

    void add_refused(std::size_t index, batch_verdict& verdict) {
        refused_.push_back({results_[index], planned_[index].request, std::move(verdict.refusals.at(index))});
    }

    /// Lets no write of the group of `leaving` seal the token, which that needs when it runs isolated.
    void keep_token_for(const planned_write& leaving) {
        if (!leaving.group) return;
        for (auto& write : planned_)
            write.keeps_token = write.keeps_token || write.group == leaving.group;
    }

    void separate_checks() {
        transaction_.options().separate_checks = true;
        transaction_.options().join_updates = false;
    }

    progress keep_and_commit(batch_verdict& verdict) {
        try {
            if (!keep(verdict.outcomes)) return progress::done;
        } catch (const session_lost&) {
            transaction_.reconnect_once();
            return progress::run_again;
        }
        return commit(verdict);
    }

    /// Keeps the outcomes of the writes.
    ///
    /// Out: false where PostgreSQL refused; it does not say which write is the cause.
    bool keep(std::map<std::size_t, write_outcome>& outcomes) {
        std::vector<outcome_to_keep> kept;
        for (auto& [i, done] : outcomes) {
            auto& outcome = results_[i]->outcome;
            outcome = std::move(done);
            const auto* request = planned_[i].request;
            if (request->key) kept.push_back({request, write_kept(*request, *outcome)});
        }
        if (kept.empty() || !transaction_.keep(kept)) return true;
        roll_back(transaction_.session());
        return false;
    }

    /// Commits. Where PostgreSQL refuses, the writes run again with separate checks, which show which of them is the
    /// cause.
    progress commit(batch_verdict& verdict) {
        const auto& first = planned_.front();
        refused_.reserve(refused_.size() + verdict.refusals.size());  // nothing may fail behind the COMMIT
        std::optional<failure> failed;
        try {
            failed = failure_of(
                commit_write(transaction_.session(), first.request->write_id, first.resource(), transaction_.until()));
        } catch (const statement_failed& e) {
            if (planned_.size() == 1 || transaction_.options().separate_checks) return progress::done;
            if (is_timeout_or_deadlock(e.error.sqlstate)) limit_time(reduced_statement_timeout);
            transaction_.session().begin_transaction();  // the COMMIT that was sent counts no more
            separate_checks();
            return progress::run_again;
        }
        if (failed) {
            fail_all(*failed);
            return progress::done;
        }
        for (std::size_t i = 0; i < results_.size(); ++i) {
            if (verdict.refusals.contains(i)) {
                add_refused(i, verdict);
            } else {
                results_[i]->status = batch_options_.defer_flush ? batch_result::committed : batch_result::decided;
            }
        }
        return progress::done;
    }

    const batch_options& batch_options_;
    write_transaction transaction_;
    std::vector<planned_write> planned_;  ///< The writes that are left in the transaction.
    std::vector<batch_write*> results_;   ///< Where the result of each goes.
    std::vector<refused_write> refused_;
};

}  // namespace

write_transaction::write_transaction(write_session& session, memory_budget& budget, transaction_options options,
                                     deadline until)
    : session_(session), budget_(budget), options_(options), until_(until) {
    session.begin_transaction();
}

/// Returns the errors that execute() returns instead of throwing them.
statement_errors write_transaction::returned_errors() const {
    return options_.isolated ? statement_errors::all : statement_errors::usable_session;
}

transcript write_transaction::send(const std::vector<planned_write>& writes, transaction_plan& plan) {
    for (;;) {
        plan = plan_transaction(writes, options_);
        transcript seen;
        for (std::size_t i = 0; i < plan.steps.size(); ++i) {
            const auto& step = plan.steps[i];
            if (step.statement != nullptr && gives_text(step.statement->shape))
                seen.texts.try_emplace(i, budget_, writes[step.write.value()].request->initiator.principal);
        }
        try {
            execute(plan, returned_errors(), until_, seen);
            const bool may_repeat = seen.error && is_outdated_statement(*seen.error) && !session_.was_cut() &&
                                    !(options_.isolated && executed_user_code(plan, seen));
            if (!may_repeat || repeated_) return seen;
            repeated_ = true;
            if (seen.sent) roll_back(session_);
            session_.connect();
        } catch (const session_lost&) {
            if (options_.isolated && !seen.answers.empty()) throw;
            reconnect_once();
        }
    }
}

void write_transaction::reconnect_once() {
    if (session_.was_cut() || repeated_) throw;
    repeated_ = true;
    session_.connect();
}

std::optional<write_refusal> write_transaction::keep(const std::vector<outcome_to_keep>& outcomes) {
    if (!session_.in_transaction()) throw session_lost("the transaction of the writes is not open any more");
    const auto plan = plan_kept_outcomes(outcomes, options_.isolated);
    transcript seen;
    execute(plan, returned_errors(), until_, seen);
    if (!seen.error) return std::nullopt;
    if (options_.isolated) log_for_operator(*seen.error);
    return refuse_for_error(*seen.error, &plan.steps[seen.failed]);
}

void write_transaction::record(const std::vector<history_item>& items, const std::vector<outcome_to_keep>& kept) {
    const auto plan = plan_failure_records(history_json(items), kept, options_);
    transcript seen;
    execute(plan, statement_errors::usable_session, deadline::max(), seen);
    if (seen.error) throw statement_failed(*seen.error);
}

/// Sends the steps of `plan` and reads their answers, round trip by round trip, as long as allows_next() holds.
///
/// Out: `seen`: the answers so far, also where it throws.
void write_transaction::execute(const transaction_plan& plan, statement_errors returned, deadline until,
                                transcript& seen) {
    for (std::size_t begin = 0; begin < plan.steps.size();) {
        const auto first = plan.steps[begin].kind;
        const bool begins_operation = first == step_kind::operation || first == step_kind::take_role;
        if (begin > 0 && begins_operation && clock::now() >= until) {
            seen.out_of_time = true;
            return;
        }
        const auto end = end_of_round_trip(session_, plan, begin);
        if (!run_round_trip(plan, begin, end, returned, seen) || end == plan.steps.size()) return;
        for (; begin < end; ++begin) {
            if (!allows_next(plan, seen, begin)) return;
        }
    }
}

/// Sends the steps from `begin` on, before `end`, and reads their answers.
///
/// Out: whether all of them succeeded.
bool write_transaction::run_round_trip(const transaction_plan& plan, std::size_t begin, std::size_t end,
                                       statement_errors returned, transcript& seen) {
    std::vector<prepared_call> calls;
    bool user_code = false;
    for (auto i = begin; i < end; ++i) {
        const auto& step = plan.steps[i];
        user_code = user_code || step.runs_user_code;
        try {
            calls.push_back({session_.prepare(*step.sql), step.parameters, receiver_of(seen, i)});
        } catch (const statement_failed& e) {
            seen.error = e.error;
            seen.failed = i;
            seen.unprepared = true;
            return false;
        }
    }
    if (user_code) session_.mark_user_code_executed();
    seen.sent = true;
    auto trip = session_.run(calls, returned);
    std::ranges::move(trip.answers, std::back_inserter(seen.answers));
    seen.error = std::move(trip.error);
    seen.failed = seen.answers.size();
    return !seen.error;
}

void run_shared_transaction(write_session& session, memory_budget& budget, std::vector<batch_write>& writes,
                            deadline until, const batch_options& options) {
    shared_transaction transaction(session, budget, writes, until, options);
    try {
        while (transaction.run() == shared_transaction::progress::run_again) {
        }
    } catch (const session_lost& lost) {
        transaction.fail_all(unavailable_because(lost.cause));
    }
    transaction.decide_refused();
}

}  // namespace fencegate::pg
