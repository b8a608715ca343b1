#include <gateway/pg/write/isolated_write.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/executor/job.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

/// Runs an isolated write, planned with one catalog.
class isolated_run {
  public:
    isolated_run(write_session& session, memory_budget& budget, const write_request& request, deadline until)
        : session_(session), request_(request), transaction_(session, budget, first_options(session, until), until) {}

    result<write_outcome> perform(write_statements statements) {
        std::vector<planned_write> writes(1);
        writes.front() = {&request_, std::move(statements)};
        transaction_plan plan;
        auto seen = transaction_.send(writes, plan);
        executed_user_code_ = pg::executed_user_code(plan, seen);
        auto verdict = evaluate_write(plan, writes.front(), seen);
        if (verdict.refusal && seen.error) {
            log_for_operator(*seen.error);
            replace_outdated(*seen.error, verdict.refusal->why);
        }
        if (!verdict.refusal && request_.key)
            verdict.refusal = transaction_.keep({{&request_, write_kept(request_, *verdict.outcome)}});
        if (!verdict.refusal) {
            try {
                if (auto failed = commit()) return std::move(*failed);
                return std::move(*verdict.outcome);
            } catch (const statement_failed& e) {
                verdict.refusal = refuse_for_error(e.error, nullptr);
                replace_outdated(e.error, verdict.refusal->why);
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
        return handling_.record && refusal_->sqlstate ? std::string_view(*refusal_->sqlstate) : std::string_view();
    }

    /// Whether code of an application may have run, so that the write must not be planned again here.
    bool executed_user_code() const { return executed_user_code_; }

    /// Whether a repeat with the write's key is to get the refusal.
    bool keeps_refusal() const { return handling_.end == refusal_end::rollback_to_savepoint; }

    /// Adds the history's row of a failed write, and keeps the refusal under the write's key if `keeps`: in the
    /// transaction that has claimed the key, else in one of its own. The commit also proves that the data from which
    /// the refusal follows are on disk; where it fails, `why` is marked durability_unproven.
    void record(failure& why, bool keeps) {
        if (!handling_.record) return;
        const bool keyed = keeps_refusal();
        try {
            std::vector<outcome_to_keep> kept;
            if (keyed && keeps && session_.in_transaction()) kept.push_back({&request_, write_kept(request_, why)});
            transaction_.record({*handling_.record}, kept);
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

    /// Lets the caller repeat a write that was not sent again although an outdated statement may be the cause.
    void replace_outdated(const server_error& error, failure& why) const {
        if (is_outdated_statement(error) && !transaction_.was_repeated() && session_.is_reused())
            why = outdated_during_call();
    }

    /// Commits.
    ///
    /// Out: empty where it was committed.
    std::optional<failure> commit() {
        return failure_of(
            commit_write(session_, request_.write_id, request_.resources.front().str(), transaction_.until()));
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
                roll_back(session_);
                break;
        }
        if (!handling_.drop_session) return;
        session_.drop();
        spdlog::error("the guard can't be called: {}", refusal_->sqlstate.value());
    }

    write_session& session_;
    const write_request& request_;
    write_transaction transaction_;
    bool executed_user_code_ = false;
    std::optional<write_refusal> refusal_;
    refusal_handling handling_;
};

/// Looks up the outcome kept under the write's key: the write may have fitted the catalog when it was sent first.
std::optional<result<write_outcome>> find_earlier(write_session& session, const write_request& request) {
    if (!request.key) return std::nullopt;
    const outcome_key key{request.initiator.principal, *request.key};
    const auto rows = run_statement(session, find_outcomes_sql, key_parameters({&key}));
    return read_key_state(rows.text(0, key_column::state), rows.text(0, key_column::outcome));
}

/// Whether the catalog has changed between `known` and a refusal that just arrived; empty: unknown. `certain`: reads
/// the catalog even if it was read a moment ago.
std::optional<bool> is_outdated(catalog_source& catalogs, const std::shared_ptr<const catalog>& known, bool certain) {
    try {
        const auto newest = certain ? catalogs.refresh_since(known, clock::now()) : catalogs.refresh(known);
        if (!newest) return std::nullopt;
        return newest->source != known->source;
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

class isolated_job final : public job {
  public:
    isolated_job(pending_write write, catalog_store& catalogs, memory_budget& budget)
        : job(write.until), write_(std::move(write)), catalogs_(catalogs), budget_(budget) {}

    void run(session_slot& slot, std::span<const std::unique_ptr<job>> /*joined*/) noexcept override {
        slot_catalog catalogs(slot, catalogs_);
        run_and_answer(slot, catalogs, budget_, write_);
    }
    void refuse(failure why) noexcept override { write_.refuse(std::move(why)); }
    std::shared_ptr<waiting_caller> caller() const override { return write_.caller; }
    const std::string& principal() const override { return write_.principal(); }

  private:
    pending_write write_;
    catalog_store& catalogs_;
    memory_budget& budget_;
};

}  // namespace

result<write_outcome> run_isolated(write_session& session, catalog_source& catalogs, memory_budget& budget,
                                   const write_request& request, deadline until) {
    const auto plan_statements = [&request](const catalog& known) {
        return build_statements(known, request.operations, {request.return_rows, request.select, request.format});
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
        isolated_run run(session, budget, request, until);
        auto outcome = run.perform(std::move(statements));
        if (outcome) return outcome;
        std::optional<bool> outdated = false;
        if (may_be_outdated(run.failed_sqlstate())) outdated = is_outdated(catalogs, known, run.keeps_refusal());
        if (outdated.value_or(false)) {
            session.drop();  // prepared statements keep the types with which they were prepared
            if (first && !run.executed_user_code()) continue;
            return outdated_during_call();
        }
        failure why = outcome.error();
        // A repeat must not get the refusal of a statement that was built from a former type.
        run.record(why, !outdated.value_or(true));
        return why;
    }
}

void run_and_answer(write_session& session, catalog_source& catalogs, memory_budget& budget,
                    pending_write& write) noexcept {
    auto outcome = attempt<write_outcome>(session, effect::by_commit, [&](write_session& attempted) {
        return run_isolated(attempted, catalogs, budget, write.request, write.until);
    });
    if (!outcome) return write.caller->answer(outcome.error());
    write.caller->answer(committed_write{std::move(*outcome)});
}

isolated_write_executor::isolated_write_executor(const postgres_config& cfg, queued_jobs& queued,
                                                 catalog_store& catalogs, memory_budget& budget)
    : catalogs_(catalogs), budget_(budget) {
    for (unsigned i = 0; i < std::max(cfg.connections, 1U); ++i)
        workers_.push_back(std::make_unique<worker>(cfg, queued, worker_options{.connect_lazily = true}));
}

bool isolated_write_executor::has_writes_on(const std::vector<lockcore::resource_name>& resources) const {
    const std::lock_guard lock(mutex_);
    return !queues_.empty() &&
           std::ranges::any_of(resources, [this](const auto& resource) { return queues_.contains(resource.str()); });
}

std::size_t isolated_write_executor::choose_worker(const std::vector<lockcore::resource_name>& resources,
                                                   const writes_by_worker& own_writes) const {
    for (const auto& resource : resources) {
        if (const auto found = queues_.find(resource.str()); found != queues_.end()) return found->second.worker;
    }
    const auto used = workers_.size() - static_cast<std::size_t>(std::ranges::count(own_writes, std::size_t{0}));
    const bool has_share = used >= share_of_workers(workers_.size());
    std::optional<std::size_t> out;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
        if (has_share && own_writes[i] == 0) continue;
        if (!out || workers_[i]->rank() < workers_[*out]->rank()) out = i;
    }
    return *out;
}

void isolated_write_executor::finish_write(const std::vector<lockcore::resource_name>& resources,
                                           const std::string& principal, std::size_t worker) {
    const std::lock_guard lock(mutex_);
    const auto own = by_principal_.find(principal);
    --own->second[worker];
    if (std::ranges::all_of(own->second, [](std::size_t writes) { return writes == 0; })) by_principal_.erase(own);
    for (const auto& resource : resources) {
        const auto found = queues_.find(resource.str());
        if (--found->second.writes == 0) queues_.erase(found);
    }
}

joined_worker isolated_write_executor::join(std::vector<lockcore::resource_name> resources, std::string principal) {
    std::size_t chosen = 0;
    {
        const std::lock_guard lock(mutex_);
        auto& own_writes = by_principal_.try_emplace(principal, workers_.size()).first->second;
        chosen = choose_worker(resources, own_writes);
        ++own_writes[chosen];
        for (const auto& resource : resources)
            ++queues_.try_emplace(resource.str(), resource_queue{chosen, 0}).first->second.writes;
    }
    auto leave = [this, chosen, resources = std::move(resources), principal = std::move(principal)](void*) {
        finish_write(resources, principal, chosen);
    };
    return {*workers_[chosen], std::shared_ptr<void>(nullptr, std::move(leave))};
}

void isolated_write_executor::submit(pending_write write, later_writes later) {
    std::vector<lockcore::resource_name> queued_on;
    if (later == later_writes::in_its_queue) queued_on = write.request.resources;
    auto [chosen, ticket] = join(std::move(queued_on), write.principal());
    auto work = std::make_unique<isolated_job>(std::move(write), catalogs_, budget_);
    work->ticket = std::move(ticket);
    chosen.submit(std::move(work));
}

}  // namespace fencegate::pg
