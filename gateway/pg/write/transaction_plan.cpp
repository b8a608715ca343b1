#include <gateway/pg/write/transaction_plan.hpp>

#include <gateway/pg/history/history_writer.hpp>
#include <gateway/pg/write/guard_call.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

namespace fencegate::pg {
namespace {

const std::string begin_sql = "begin";
const std::string savepoint_sql = "savepoint claimed";
const std::string constraints_sql = "set constraints all immediate";
const std::string defer_sql = "select fencing.defer_constraints()";
const std::string timeouts_sql =
    "select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)";
const std::string timeouts_deferred_sql = timeouts_sql + ", set_config('synchronous_commit', 'off', true)";
/// Shows the trace of the writes to those who look at the sessions of PostgreSQL.
const std::string traced = ", set_config('application_name', $3, true)";
const std::string timeouts_traced_sql = timeouts_sql + traced;
const std::string timeouts_deferred_traced_sql = timeouts_deferred_sql + traced;
const compat::parameters no_parameters;

const std::string& timeouts_sql_of(const transaction_options& options, bool is_traced) {
    if (is_traced) return options.defer_flush ? timeouts_deferred_traced_sql : timeouts_traced_sql;
    return options.defer_flush ? timeouts_deferred_sql : timeouts_sql;
}

compat::parameters timeouts_of(const transaction_options& options) {
    return {std::to_string(options.statement_timeout.count()), std::to_string(options.lock_timeout.count())};
}

/// Returns `fencegate TRACE`, and ` +N` for N further traces: at most 63 bytes; empty if no caller sent a traceparent.
std::string name_traces(const std::vector<planned_write>& writes) {
    std::set<std::string_view> traces;
    for (const auto& write : writes)
        traces.insert(write.request->initiator.trace_id);
    traces.erase("");
    if (traces.empty()) return {};
    std::string out = "fencegate " + std::string(*traces.begin());
    if (traces.size() > 1) out += " +" + std::to_string(traces.size() - 1);
    return out;
}

class transaction_planner {
  public:
    transaction_planner(const std::vector<planned_write>& writes, const transaction_options& options)
        : writes_(writes), options_(options) {
        plan_.writes.resize(writes.size());
    }

    transaction_plan plan() {
        add(step_kind::begin, begin_sql, no_parameters);
        std::string traces = name_traces(writes_);
        const bool is_traced = !traces.empty();
        auto values = timeouts_of(options_);
        if (is_traced) values.emplace_back(std::move(traces));
        add(step_kind::timeouts, timeouts_sql_of(options_, is_traced), store(std::move(values)));
        if (!options_.isolated) plan_.prepared_with_timeouts = plan_.steps.size();
        claim_keys();
        for (std::size_t i = 0; i < writes_.size();) {
            const auto end = find_joined_end(i);
            if (end - i > 1) join_writes(i, end);
            for (; i < end; ++i) {
                if (!plan_.writes[i].joined_update) add_write(i);
            }
        }
        seal();
        plan_.steps.back().ends_round_trip = true;
        if (options_.isolated) {
            for (auto& step : plan_.steps)
                step.write = 0;
        }
        return std::move(plan_);
    }

  private:
    const compat::parameters& store(compat::parameters values) { return plan_.values.emplace_back(std::move(values)); }

    transaction_step& add(step_kind kind, const std::string& sql, const compat::parameters& parameters) {
        auto& step = plan_.steps.emplace_back();
        step.kind = kind;
        step.sql = &sql;
        step.parameters = &parameters;
        return step;
    }

    void claim_keys() {
        std::vector<const write_request*> requests;
        for (std::size_t i = 0; i < writes_.size(); ++i) {
            if (!writes_[i].request->key) continue;
            plan_.writes[i].key_row = static_cast<int>(requests.size());
            requests.push_back(writes_[i].request);
        }
        if (requests.empty()) return;
        plan_.key_step = plan_.steps.size();
        add(step_kind::claim_keys, claim_keys_sql, store(claim_keys_parameters(requests)));
        if (!options_.isolated) return;
        plan_.steps.back().ends_round_trip = true;
        add(step_kind::savepoint, savepoint_sql, no_parameters);
    }

    static bool is_same(const database_identity_ptr& a, const database_identity_ptr& b) {
        return a == b || (a && b && a->role == b->role && a->claims == b->claims);
    }

    /// The steps in the name of one identity. What its operations defer runs before it ends: COMMIT would run it in the
    /// name of another.
    struct role_section {
        database_identity_ptr identity;      ///< Null: the gateway itself.
        std::vector<std::size_t> deferring;  ///< The writes whose deferred triggers have not run.
        bool defers = true;                  ///< Whether constraints that are deferred at first are deferred now.
    };

    /// Ends the section before a write, unless its identity is the same.
    void end_section(const database_identity_ptr& next) {
        if (!options_.separate_checks && is_same(section_.identity, next)) return;
        run_deferred();
        leave_role();
    }

    /// Runs what the operations of this section have deferred.
    void run_deferred() {
        if (section_.deferring.empty()) return;
        deselect_writes();
        auto& step = add(step_kind::constraints, constraints_sql, no_parameters);
        if (section_.deferring.size() == 1) step.write = section_.deferring.front();
        step.in_callers_role = section_.identity != nullptr;
        step.ends_round_trip = options_.isolated;
        section_.deferring.clear();
        section_.defers = false;
    }

    /// Selects none of several writes, so that the guard refuses changes by what they have deferred: it does not say
    /// for which of them it makes a change.
    void deselect_writes() {
        if (section_.deferring.size() <= 1) return;
        add(step_kind::select_write, select_write_sql, store({""}));
        selected_write_ = nullptr;
    }

    /// Lets the next operations defer again.
    void defer() {
        if (!std::exchange(section_.defers, true)) add(step_kind::defer, defer_sql, no_parameters);
    }

    /// Takes the role of a write; no step if the write before had the same.
    void take_role(const database_identity_ptr& wanted, std::size_t write) {
        if (is_same(section_.identity, wanted)) return;
        auto& step = add(step_kind::take_role, take_role_sql, store(take_role_parameters(*wanted)));
        step.write = write;
        step.in_callers_role = true;
        section_.identity = wanted;
    }

    /// Calls of the guard and of the history need the gateway's own role.
    void leave_role() {
        if (!section_.identity) return;
        run_deferred();
        add(step_kind::leave_role, leave_role_sql, no_parameters);
        section_.identity = nullptr;
    }

    /// Whether the call of the guard seals the token, which costs little, because nothing else in the transaction uses
    /// it: no other write, and no function, to which a caller can pass it.
    bool is_sealed_by_guard(const planned_write& write) const {
        const auto is_call = [](const operation& each) { return std::holds_alternative<call_operation>(each); };
        return write.seals() && writes_.size() == 1 && write.request->resources.size() == 1 &&
               std::ranges::none_of(write.request->operations, is_call);
    }

    void seal() {
        std::vector<const write_request*> requests;
        for (std::size_t i = 0; i < writes_.size(); ++i) {
            const auto& write = writes_[i];
            if (write.seals() && plan_.writes[i].entered && !is_sealed_by_guard(write))
                requests.push_back(write.request);
        }
        const bool keeps =
            std::ranges::any_of(writes_, [](const planned_write& w) { return w.request->key.has_value(); });
        // So that a refusal is known to be that of the role, or of the last write.
        if (section_.identity || options_.separate_checks) run_deferred();
        deselect_writes();
        if (keeps || !requests.empty()) leave_role();  // otherwise COMMIT does
        if (!requests.empty()) add(step_kind::seal, seal_sql, store(seal_parameters(requests)));
    }

    /// Whether a write has the resource of the one before it, under the same token and of the same caller.
    bool continues_lease(std::size_t index) const {
        const auto& request = *writes_[index].request;
        const auto& before = *writes_[index - 1].request;
        return request.token == before.token && request.resources == before.resources &&
               request.initiator.principal == before.initiator.principal;
    }

    /// Returns the end of the writes, from `begin` on, whose resources one call can enter: writes of one resource each,
    /// those of the same resource under one token. At least one write.
    std::size_t find_joined_end(std::size_t begin) const {
        auto end = begin;
        while (options_.join_guards && !options_.isolated && end < writes_.size() &&
               writes_[end].request->resources.size() == 1 &&
               (end == begin || writes_[end].resource() != writes_[end - 1].resource() || continues_lease(end))) {
            ++end;
        }
        return std::max(end, begin + 1);
    }

    /// The updates of several writes in one statement.
    struct update_to_join {
        std::size_t index;  ///< Index in transaction_plan::joined_updates.
        joined_statement statement;
        std::vector<std::size_t> members;  ///< Indexes of the writes.
    };

    /// Enters the resources of several writes by one call, and joins the updates that one statement can make.
    void join_writes(std::size_t begin, std::size_t end) {
        std::map<std::string_view, std::vector<std::size_t>> by_sql;
        for (auto i = begin; options_.join_updates && i < end; ++i) {
            const auto& write = writes_[i];
            const bool shares = (i > begin && continues_lease(i)) || (i + 1 < end && continues_lease(i + 1));
            const bool only_updates = !shares && write.statements.operations.size() == 1 &&
                                      !write.request->return_rows && !write.request->identity &&
                                      std::holds_alternative<update_operation>(write.request->operations.front());
            if (only_updates) by_sql[write.statements.operations.front().sql.sql].push_back(i);
        }
        std::vector<update_to_join> joined;
        for (auto& [sql, members] : by_sql) {
            if (members.size() < joined_min || options_.unjoinable->has(std::string(sql))) continue;
            const auto& first = writes_[members.front()];
            auto update = join_update(*options_.known, std::get<update_operation>(first.request->operations.front()));
            if (!update || update->parameters != first.statements.operations.front().sql.parameters.size()) continue;
            const auto index = plan_.joined_updates.size();
            for (const auto i : members)
                plan_.writes[i].joined_update = index;
            plan_.joined_updates.push_back(
                {.single_update = std::string(sql), .first_write = members.front(), .writes = members.size()});
            joined.push_back({.index = index, .statement = std::move(*update), .members = std::move(members)});
        }
        enter_together(begin, end);
        for (auto& update : joined)
            add_joined_update(update);
    }

    /// Adds the step that enters the resources of several writes.
    void enter_together(std::size_t begin, std::size_t end) {
        std::vector<const write_request*> requests;
        std::vector<std::string> entered_for;
        leave_role();
        selected_write_ = nullptr;
        for (auto i = begin; i < end; ++i) {
            auto& steps = plan_.writes[i];
            const bool continues = i > begin && continues_lease(i);
            steps.guard = plan_.steps.size();
            steps.entered = !continues || !writes_[i].presumed_refused;
            if (steps.joined_update) {
                steps.entered_for = plan_.joined_updates[*steps.joined_update].first_write;
            } else {
                steps.entered_for = continues ? plan_.writes[i - 1].entered_for : i;
            }
            if (!steps.entered) {
                steps.joined_guard_row = plan_.writes[i - 1].joined_guard_row;
                continue;
            }
            steps.joined_guard_row = static_cast<int>(requests.size());
            requests.push_back(writes_[i].request);
            entered_for.push_back(writes_[steps.entered_for].request->write_id);
        }
        add(step_kind::guards, begin_writes_sql, store(begin_writes_parameters(requests, entered_for)));
    }

    void add_joined_update(update_to_join& update) {
        defer();
        joined_values columns(update.statement.parameters);
        for (const auto i : update.members)
            columns.add(writes_[i].statements.operations.front().sql.parameters, writes_[i].resource());
        const auto add_step_of_update = [this, &update](step_kind kind, const std::string& sql,
                                                        compat::parameters values) {
            add(kind, sql, store(std::move(values))).joined_update = update.index;
            return plan_.steps.size() - 1;
        };
        selected_write_ = nullptr;
        auto& planned = plan_.joined_updates[update.index];
        planned.select = add_step_of_update(step_kind::select_write, select_write_sql,
                                            {writes_[planned.first_write].request->write_id});
        planned.update = add_step_of_update(step_kind::operation,
                                            plan_.texts.emplace_back(std::move(update.statement.sql)), columns.take());
        planned.recheck = add_step_of_update(step_kind::recheck, recheck_sql(), std::move(update.statement.recheck));
        std::size_t position = 0;
        for (const auto i : update.members) {
            auto& steps = plan_.writes[i];
            steps.position = ++position;
            steps.first_operation = planned.update;
            steps.end = planned.recheck + 1;
        }
        section_.deferring.insert(section_.deferring.end(), update.members.begin(), update.members.end());
    }

    /// Before the resources of the write are entered, as clients do by enter_shared: another order could deadlock.
    void read_shared(const write_request& request, std::size_t index) {
        if (request.shared.empty()) return;
        const auto fences = read_fences_of(request);
        plan_.writes[index].read_fences = plan_.steps.size();
        auto values = raise_fences_parameters(fences, request.initiator, "read by a write");
        add(step_kind::read_fences, raise_fences_sql(fences), store(std::move(values))).write = index;
    }

    void add_write(std::size_t index) {
        const auto& write = writes_[index];
        auto& steps = plan_.writes[index];
        end_section(write.request->identity);
        if (steps.joined_guard_row) {  // its resource is entered already
            const auto* entered_for = writes_[steps.entered_for].request;
            if (std::exchange(selected_write_, entered_for) != entered_for)
                add(step_kind::select_write, select_write_sql, store({entered_for->write_id})).write = index;
            if (entered_for != write.request)
                add(step_kind::name_write, name_write_sql, store({write.request->write_id})).write = index;
        } else {
            selected_write_ = nullptr;
            leave_role();
            read_shared(*write.request, index);
            steps.guard = plan_.steps.size();
            const auto& sql = is_sealed_by_guard(write) ? begin_sealing_write_sql : begin_write_sql;
            add(step_kind::guard, sql, store(begin_write_parameters(*write.request, options_.isolated))).write = index;
        }
        plan_.steps.back().ends_round_trip = options_.isolated;
        defer();
        take_role(write.request->identity, index);
        steps.first_operation = plan_.steps.size();
        for (std::size_t i = 0; i < write.statements.operations.size(); ++i) {
            const auto& operation = write.statements.operations[i];
            auto& step = add(step_kind::operation, operation.sql.sql, operation.sql.parameters);
            step.write = index;
            step.operation = i;
            step.statement = &operation;
            step.in_callers_role = write.request->identity != nullptr;
            // Policies and triggers may keep the claims of a caller.
            step.runs_user_code =
                step.in_callers_role || std::holds_alternative<call_operation>(write.request->operations[i]);
            // What the last one defers is run in the same round trip if it has to run in the caller's role.
            const bool last = i + 1 == write.statements.operations.size();
            step.ends_round_trip = options_.isolated && !(last && write.request->identity);
        }
        steps.end = plan_.steps.size();
        section_.deferring.push_back(index);
    }

    const std::vector<planned_write>& writes_;
    const transaction_options& options_;
    transaction_plan plan_;
    role_section section_;
    const write_request* selected_write_ = nullptr;  ///< The write that the last select_write step has selected.
};

void add_step(transaction_plan& plan, step_kind kind, const std::string& sql, compat::parameters values) {
    auto& step = plan.steps.emplace_back();
    step.kind = kind;
    step.sql = &sql;
    step.parameters = &plan.values.emplace_back(std::move(values));
    step.write = 0;
}

}  // namespace

transaction_plan plan_transaction(const std::vector<planned_write>& writes, const transaction_options& options) {
    return transaction_planner(writes, options).plan();
}

transaction_plan plan_kept_outcomes(const std::vector<outcome_to_keep>& outcomes, bool isolated) {
    transaction_plan plan;
    if (outcomes.empty()) return plan;
    if (isolated) add_step(plan, step_kind::constraints, constraints_sql, {});
    add_step(plan, step_kind::keep, keep_outcomes_sql, keep_outcomes_parameters(outcomes));
    plan.steps.back().ends_round_trip = true;
    return plan;
}

transaction_plan plan_failure_records(const std::string& items_json, const std::vector<outcome_to_keep>& kept,
                                      const transaction_options& options) {
    transaction_plan plan;
    if (!options.isolated) add_step(plan, step_kind::timeouts, timeouts_sql_of(options, false), timeouts_of(options));
    add_step(plan, step_kind::record, record_events_sql(), {items_json});
    if (!kept.empty()) add_step(plan, step_kind::keep, keep_outcomes_sql, keep_outcomes_parameters(kept));
    plan.steps.back().ends_round_trip = true;
    return plan;
}

}  // namespace fencegate::pg
