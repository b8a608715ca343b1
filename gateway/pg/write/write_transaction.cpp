#include <gateway/pg/write/write_transaction.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/history/history_writer.hpp>

#include <spdlog/spdlog.h>
#include <lockcore/invariant.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

text_receiver* receiver_of(transcript& seen, std::size_t step) {
    const auto found = seen.texts.find(step);
    return found == seen.texts.end() ? nullptr : &found->second;
}

bool are_prepared(const write_session& session, const transaction_plan& plan, std::size_t begin, std::size_t end) {
    return std::all_of(plan.steps.begin() + static_cast<std::ptrdiff_t>(begin),
                       plan.steps.begin() + static_cast<std::ptrdiff_t>(end),
                       [&session](const transaction_step& step) { return session.is_prepared(*step.sql); });
}

/// Prepares the statements of one round trip.
///
/// Out: empty, or the step that could not be prepared.
std::optional<std::size_t> prepare(write_session& session, const transaction_plan& plan, std::size_t begin,
                                   std::size_t end, std::vector<prepared_call>& calls, transcript& seen) {
    calls.clear();
    for (auto i = begin; i < end; ++i) {
        try {
            calls.push_back({session.prepare(*plan.steps[i].sql), plan.steps[i].parameters, receiver_of(seen, i)});
        } catch (const statement_failed& e) {
            seen.error = e.error;
            return i;
        }
    }
    return std::nullopt;
}

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
        if (verdict.separate_checks) separate_checks();
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

    void separate_checks() {
        run_.options().separate_checks = true;
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
            if (request->key) kept.push_back({request, write_kept(*request, *answer)});
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
            if (planned_.size() == 1 || run_.options().separate_checks) return true;  // all are tried again isolated
            if (is_timeout_or_deadlock(e.error.sqlstate)) limit_time(reduced_statement_timeout);
            run_.session().begin_transaction();
            separate_checks();
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
    write_transaction run_;
    std::vector<planned_write> planned_;  ///< The writes that are still in the transaction.
    std::vector<std::size_t> places_;     ///< Their indexes in writes_.
};

/// Returns the entry for a committed write that waits for the disk.
undurable_write make_undurable_write(pending_write& write, write_outcome outcome) {
    undurable_write out{outcome.write_id, write.first_resource(), write.until, write.caller, {}};
    if (write.request.seal) {  // its lease can be released while it waits
        auto waiter = std::make_shared<durability_waiter>(write.caller->executor());
        write.caller->answer(committed_write{std::move(outcome), waiter});
        out.caller = waiter;
        out.answer = [waiter](const std::optional<failure>& why) { waiter->answer(why); };
        return out;
    }
    out.answer = [caller = write.caller, outcome = std::move(outcome)](const std::optional<failure>& why) mutable {
        if (why) {
            caller->answer(*why);
        } else {
            caller->answer(committed_write{std::move(outcome)});
        }
    };
    return out;
}

bool defers_flush(flush_mode flush, const std::vector<batch_write>& writes) {
    if (writes.empty() || flush == flush_mode::by_commit) return false;
    return flush == flush_mode::deferred || writes.size() > 1 || writes.front().write.request->seal;
}

/// Plans the writes of the batch whose operations fit the catalog and whose deadline has not passed; the others are
/// left out. `places`: the indexes of the planned writes in the batch.
std::vector<batch_write> plan_statements(const std::vector<pending_write>& batch, const catalog& known,
                                         std::vector<std::size_t>& places) {
    std::vector<batch_write> out;
    const auto now = clock::now();
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const auto& request = batch[i].request;
        if (now >= batch[i].until) continue;  // delayed by an earlier batch; its caller may have been answered
        auto statements = plan_write(known, request.operations, {request.return_rows, request.select, request.format});
        if (!statements.faults.empty()) continue;
        out.push_back({{&request, std::move(statements)}});
        places.push_back(i);
    }
    return out;
}

}  // namespace

write_transaction::write_transaction(write_session& session, memory_budget& answers, transaction_options options,
                                     deadline until)
    : session_(session),
      answers_(answers),
      options_(options),
      returned_(options_.isolated ? statement_errors::all : statement_errors::usable_session),
      until_(until) {
    session.begin_transaction();
}

transcript write_transaction::send(const std::vector<planned_write>& writes, transaction_plan& plan) {
    for (;;) {
        plan = plan_transaction(writes, options_);
        transcript seen;
        try {
            execute(plan, writes, returned_, until_, seen);
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

void write_transaction::reconnect_once() {
    if (session_.was_cut() || std::exchange(retried_, true)) throw;
    session_.connect();
}

std::optional<write_refusal> write_transaction::keep(const std::vector<outcome_to_keep>& outcomes) {
    if (!session_.in_transaction()) throw session_lost("the transaction of the writes is not open any more");
    const auto plan = plan_kept_outcomes(outcomes, options_.isolated);
    transcript seen;
    execute(plan, {}, returned_, until_, seen);
    if (!seen.error) return std::nullopt;
    if (options_.isolated) log_for_operator(*seen.error);
    return refuse_for_error(*seen.error, &plan.steps[seen.failed]);
}

void write_transaction::record(const history_item& item, const std::vector<outcome_to_keep>& kept) {
    const auto plan = plan_failure_record(history_json({item}), kept);
    transcript seen;
    execute(plan, {}, statement_errors::usable_session, deadline::max(), seen);
    if (seen.error) throw statement_failed(*seen.error);
}

/// Sends the steps of `plan` and reads their answers, round trip by round trip, as long as allows_next() holds.
///
/// Out: `seen`: the answers so far, also where it throws.
void write_transaction::execute(const transaction_plan& plan, const std::vector<planned_write>& writes,
                                statement_errors returned, deadline until, transcript& seen) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const auto& step = plan.steps[i];
        if (step.planned != nullptr && gives_text(step.planned->shape))
            seen.texts.try_emplace(i, answers_, writes[step.write.value()].request->initiator.principal);
    }
    std::vector<prepared_call> calls;
    for (std::size_t begin = 0; begin < plan.steps.size();) {
        auto end = begin;
        bool user_code = false;
        do {
            user_code = user_code || plan.steps[end].runs_user_code;
        } while (!plan.steps[end++].ends_round_trip);
        const auto first = plan.steps[begin].kind;
        if (begin > 0 && (first == step_kind::operation || first == step_kind::take_role) &&
            std::chrono::steady_clock::now() >= until) {
            seen.out_of_time = true;
            return;
        }
        if (begin < plan.limited_from && !are_prepared(session_, plan, plan.limited_from, end)) end = plan.limited_from;
        if (const auto failed = prepare(session_, plan, begin, end, calls, seen)) {
            seen.failed = *failed;
            seen.unprepared = true;
            return;
        }
        if (user_code) session_.mark_user_code_executed();
        seen.sent = true;
        auto trip = session_.run(calls, returned);
        std::ranges::move(trip.answers, std::back_inserter(seen.answers));
        seen.error = std::move(trip.error);
        seen.failed = seen.answers.size();
        if (seen.error) return;
        for (; begin < end; ++begin) {
            if (end < plan.steps.size() && !allows_next(plan, seen, begin)) return;
        }
    }
}

commit_status commit_write(write_session& session, const std::string& write_id, const std::string& resource,
                           deadline until) {
    bool open = false;
    try {
        session.begin_commit();
        open = session.in_transaction();
    } catch (const session_lost&) {
    }
    // On another session, or after an error, COMMIT would succeed and commit nothing.
    if (!open) {
        session.drop();
        return commit_status::not_committed;
    }
    try {
        session.command("commit");
        return commit_status::committed;
    } catch (const statement_failed&) {
        // If PostgreSQL refuses COMMIT before it executes it (a timeout), the transaction stays open.
        roll_back(session);
        throw;
    } catch (const session_lost&) {
    } catch (const std::exception&) {
        session.drop();  // it is not known how far COMMIT came
    }
    return resolve_commit(session, write_id, resource, until);
}

std::optional<failure> failure_of(commit_status status) {
    switch (status) {
        case commit_status::committed:
            return std::nullopt;
        case commit_status::not_committed:
            return unavailable_because("the connection to PostgreSQL broke during the commit");
        case commit_status::unknown:
            break;
    }
    failure out = unavailable(
        "The connection to PostgreSQL broke during the commit; whether the write was committed is not known.");
    out.outcome_unknown = true;
    return out;
}

void run_batch(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
               const batch_options& options) {
    batch_run(session, answers, writes, until, options).perform();
}

unanswered_writes run_and_answer_batch(write_session& session, catalog_source& catalogs, memory_budget& answers,
                                       std::vector<pending_write> batch, group_refusals& refused,
                                       flush_mode flush) noexcept {
    std::vector<batch_write> writes;
    std::vector<std::size_t> places;
    unanswered_writes out;
    out.undurable.begun = clock::now();
    try {
        batch_options options;
        options.known = catalogs.get();
        options.refused = &refused;
        writes = plan_statements(batch, *options.known, places);
        options.defer_flush = defers_flush(flush, writes);
        auto until = deadline::min();
        for (const auto place : places)
            until = std::max(until, batch[place].until);
        run_batch(session, answers, writes, until, options);
    } catch (const session_lost& lost) {
        // No catalog could be read, so that nothing was sent.
        for (auto& write : batch)
            write.refuse(unavailable_because(lost.cause));
        return out;
    } catch (const std::exception& e) {
        // Nothing was changed: each write runs isolated, which decides its answer.
        session.drop();
        writes.clear();
        spdlog::warn("writes could not share a transaction: {}", e.what());
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        auto& write = batch[i];
        const bool planned = next < writes.size() && places[next] == i;
        auto* done = planned ? &writes[next++] : nullptr;
        if (done == nullptr || done->status == batch_result::retry_isolated || done->status == batch_result::waited) {
            const bool waited = done != nullptr && done->status == batch_result::waited;
            if (clock::now() < write.until) {
                out.left.push_back({std::move(write), waited});
            } else {
                write.refuse(unavailable("PostgreSQL did not finish before the call's deadline; nothing was changed."));
            }
        } else if (done->status == batch_result::committed) {
            out.undurable.writes.push_back(make_undurable_write(write, std::move(done->answer->value())));
        } else if (*done->answer) {
            write.caller->answer(committed_write{std::move(done->answer->value())});
        } else {
            write.caller->answer(done->answer->error());
        }
    }
    return out;
}

}  // namespace fencegate::pg
