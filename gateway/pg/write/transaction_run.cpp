#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/history/history_writer.hpp>
#include <gateway/pg/write/commit_resolver.hpp>
#include <gateway/pg/write/transaction_run.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

/// Runs the writes of one transaction, shared or isolated, up to COMMIT.
class transaction_run {
  public:
    transaction_run(write_session& session, memory_budget& answers, transaction_options options, deadline until)
        : session_(session),
          answers_(answers),
          options_(options),
          unusable_(options_.isolated ? unusable_session::answers : unusable_session::throws),
          until_(until) {
        session.begin_transaction();
    }

    /// Plans and sends the transaction, once more on a new session where the first was lost, because nothing is
    /// committed yet. An isolated write is sent again only if no step was answered: a function may have done what no
    /// rollback undoes.
    transcript send(const std::vector<planned_write>& writes, transaction_plan& plan) {
        for (;;) {
            plan = plan_transaction(writes, options_);
            transcript seen;
            try {
                execute(session_, plan, writes, answers_, unusable_, until_, seen);
                return seen;
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
    transaction_run run_;
    std::vector<planned_write> planned_;  ///< The writes that are still in the transaction.
    std::vector<std::size_t> places_;     ///< Their indexes in writes_.
};

/// Runs an isolated write, planned with one catalog.
class isolated_run {
  public:
    isolated_run(write_session& session, memory_budget& answers, const write_request& request, deadline until)
        : session_(session),
          answers_(answers),
          request_(request),
          run_(session, answers, first_options(session, until), until) {}

    result<write_outcome> perform(write_plan statements) {
        std::vector<planned_write> writes(1);
        writes.front() = {&request_, std::move(statements)};
        transaction_plan plan;
        auto seen = run_.send(writes, plan);
        auto verdict = evaluate_write(plan, writes.front(), seen);
        if (verdict.refusal && seen.error) log_for_operator(*seen.error);
        if (!verdict.refusal && request_.key)
            verdict.refusal = run_.keep({{&request_, kept_text(request_, *verdict.outcome)}});
        if (!verdict.refusal) {
            try {
                if (auto failed = commit()) return std::move(*failed);
                return std::move(*verdict.outcome);
            } catch (const statement_failed& e) {
                verdict.refusal = refuse_for_error(e.error, nullptr);
            }
        }
        refusal_ = std::move(verdict.refusal);
        handling_ = handle_refusal(request_, *refusal_, std::chrono::system_clock::now());
        end_transaction();
        if (refusal_->earlier) return std::move(*refusal_->earlier);
        return refusal_->why;
    }

    /// Returns the SQLSTATE of PostgreSQL's refusal if the statements may have caused it; else empty.
    std::string_view failed_sqlstate() const {
        return handling_.record ? std::string_view(refusal_->sqlstate) : std::string_view();
    }

    /// Whether a repeat with the write's key is to get the refusal.
    bool keeps_refusal() const { return handling_.end == refusal_end::rollback_to_savepoint; }

    /// Adds the history's row of a failed write, and keeps the refusal under the write's key if `keeps`: in the
    /// transaction that has claimed the key, else in one of its own. The commit also proves that the data from which the
    /// refusal follows are on disk; where it fails, `why` is marked durability_unproven.
    void record(failure& why, bool keeps) {
        if (!handling_.record) return;
        const bool keyed = keeps_refusal();
        try {
            std::vector<outcome_to_keep> kept;
            if (keyed && keeps && session_.in_transaction()) kept.push_back({&request_, kept_text(request_, why)});
            const auto plan = plan_failure_record(history_json({*handling_.record}), kept);
            transcript seen;
            execute(session_, plan, {}, answers_, unusable_session::throws, deadline::max(), seen);
            if (seen.error) throw statement_failed(*seen.error);
            if (keyed) session_.command("commit");
            why.in_history = true;
        } catch (const std::exception& e) {
            spdlog::warn("the failure of write {} may be missing from the history: {}", request_.write_id, e.what());
            why.durability_unproven = true;
            if (keyed) session_.drop();
        }
    }

  private:
    static transaction_options first_options(const write_session& session, deadline until) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock::now());
        transaction_options out;
        out.isolated = true;
        out.statement_timeout = std::clamp(left, std::chrono::milliseconds(1), session.settings().statement_timeout);
        out.lock_timeout = session.settings().lock_timeout;
        return out;
    }

    /// Commits.
    ///
    /// Out: empty where it was committed.
    std::optional<failure> commit() {
        return failure_of(commit_write(session_, request_.write_id, request_.resources.front().str(), run_.until()));
    }

    void end_transaction() {
        switch (handling_.end) {
            case refusal_end::none:
                break;
            case refusal_end::commit:
                try {
                    session_.command("commit");
                    refusal_->why.in_history = true;
                } catch (const std::exception&) {
                    refusal_->why.durability_unproven = true;
                    spdlog::warn("the refusal of write {} may be missing from the history: the commit failed",
                                 request_.write_id);
                    session_.drop();
                }
                break;
            case refusal_end::rollback_to_savepoint:
                try {
                    session_.command("rollback to savepoint claimed");
                    break;
                } catch (const std::exception&) {
                    handling_.end = refusal_end::rollback;
                }
                [[fallthrough]];
            case refusal_end::rollback:
                roll_back(run_.session());
                break;
        }
        if (!handling_.drop_session) return;
        session_.drop();
        spdlog::error("the guard can't be called: {}", refusal_->sqlstate);
    }

    write_session& session_;
    memory_budget& answers_;
    const write_request& request_;
    transaction_run run_;
    std::optional<write_refusal> refusal_;
    refusal_handling handling_;
};

/// Looks up the outcome kept under the write's key: the write may have fitted the catalog when it was sent first.
std::optional<result<write_outcome>> find_earlier(write_session& session, const write_request& request) {
    if (!request.key) return std::nullopt;
    const outcome_key key{request.initiator.principal, *request.key};
    const auto rows = run_statement(session, find_outcomes_sql(), key_parameters({&key}));
    return read_claim(rows.text(0, 0), rows.text(0, 1));
}

/// Whether the catalog has changed between `known` and a refusal that just arrived; empty: unknown. `certain`: reads the
/// catalog even if it was read a moment ago.
std::optional<bool> is_outdated(catalog_source& catalogs, const std::shared_ptr<const catalog>& known, bool certain) {
    try {
        const auto newest = certain ? catalogs.refresh_since(known, clock::now()) : catalogs.refresh(known);
        if (!newest) return std::nullopt;
        return newest->source != known->source;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

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

}  // namespace

void execute(write_session& session, const transaction_plan& plan, std::span<const planned_write> writes,
             memory_budget& answers, unusable_session unusable, deadline until, transcript& seen) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        const auto& step = plan.steps[i];
        if (step.planned != nullptr && gives_text(step.planned->shape))
            seen.texts.try_emplace(i, answers, writes[step.write.value()].request->initiator.principal);
    }
    std::vector<prepared_call> calls;
    for (std::size_t begin = 0; begin < plan.steps.size();) {
        auto end = begin;
        bool user_code = false;
        do {
            user_code = user_code || plan.steps[end].runs_user_code;
        } while (!plan.steps[end++].ends_round_trip);
        const auto first = plan.steps[begin].kind;
        if (begin > 0 && (first == step_kind::operation || first == step_kind::take_role) && clock::now() >= until) {
            seen.out_of_time = true;
            return;
        }
        if (begin < plan.limited_from && !are_prepared(session, plan, plan.limited_from, end)) end = plan.limited_from;
        if (const auto failed = prepare(session, plan, begin, end, calls, seen)) {
            seen.failed = *failed;
            seen.unprepared = true;
            return;
        }
        if (user_code) session.mark_user_code_executed();
        seen.sent = true;
        auto trip = session.run(calls, unusable);
        std::ranges::move(trip.answers, std::back_inserter(seen.answers));
        seen.error = std::move(trip.error);
        seen.failed = seen.answers.size();
        if (seen.error) return;
        for (; begin < end; ++begin) {
            if (end < plan.steps.size() && !allows_next(plan, seen, begin)) return;
        }
    }
}

void run_batch(write_session& session, memory_budget& answers, std::vector<batch_write>& writes, deadline until,
               const batch_options& options) {
    batch_run(session, answers, writes, until, options).perform();
}

result<write_outcome> run_isolated(write_session& session, catalog_source& catalogs, memory_budget& answers,
                                   const write_request& request, deadline until) {
    const auto plan_statements = [&request](const catalog& known) {
        return plan_write(known, request.operations, {request.return_rows, request.select, request.format});
    };
    for (bool first = true;; first = false) {
        auto known = catalogs.get();
        auto statements = plan_statements(*known);
        if (statements.unknown_name) {
            known = catalogs.refresh(known);
            statements = plan_statements(*known);
        }
        if (!statements.faults.empty()) {
            if (auto earlier = find_earlier(session, request)) return std::move(*earlier);
            return refusal_of(statements);
        }
        isolated_run run(session, answers, request, until);
        auto outcome = run.perform(std::move(statements));
        if (outcome) return outcome;
        std::optional<bool> outdated = false;
        if (may_be_outdated(run.failed_sqlstate()) && (first || run.keeps_refusal()))
            outdated = is_outdated(catalogs, known, run.keeps_refusal());
        if (first && outdated.value_or(false)) {
            session.drop();  // prepared statements keep the types with which they were prepared
            continue;
        }
        failure why = outcome.error();
        // A repeat must not get the refusal of a statement that was built from a former type.
        run.record(why, !outdated.value_or(true));
        return why;
    }
}

}  // namespace fencegate::pg
