#include <gateway/pg/write/transaction_result.hpp>

#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/write/guard_call.hpp>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <lockcore/invariant.hpp>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace fencegate::pg {
namespace {

bool is_true(const char* text) {
    return text[0] == 't';
}

std::int64_t rows_affected(answer_shape shape, const answer_rows& rows, const text_receiver* text) {
    if (shape == answer_shape::rows) return std::strtoll(text->column(0).value().c_str(), nullptr, 10);
    return shape == answer_shape::affected ? rows.affected() : 0;
}

failure stale_token(const write_request& request, const std::vector<fence_state>& fences) {
    const auto newer = std::ranges::find_if(
        fences, [&](const fence_state& f) { return f.last_fencing_token > lockcore::value_of(request.token); });
    return pg::stale_token(request.token, newer == fences.end() ? fence_state{} : *newer, "nothing was changed");
}

/// Returns the failure of an operation that affected another number of rows than it may; empty if it may. `total`: the
/// rows that it affected, if not all of them are returned.
std::optional<failure> check_rows(const operation_statement& statement, std::int64_t affected,
                                  const std::optional<std::int64_t>& total) {
    const auto all = total.value_or(affected);
    const bool expected = !statement.expect_rows || *statement.expect_rows == affected;
    if (expected && (!statement.rows_max || all <= *statement.rows_max)) return std::nullopt;
    const auto found = expected ? all : affected;
    const auto wanted =
        expected ? "at most " + std::to_string(*statement.rows_max) : std::to_string(*statement.expect_rows);
    failure out = make_failure(errc::expectation_failed, "The operation affects another number of rows (" +
                                                             std::to_string(found) + ") than expected (" + wanted +
                                                             "); nothing was changed.");
    if (!expected) {
        out.facts["expected_rows"] = *statement.expect_rows;
    } else {
        out.facts["max_affected"] = *statement.rows_max;
    }
    out.facts["rows_affected"] = found;
    return out;
}

/// Returns the refusal of a statement that PostgreSQL executed.
write_refusal refuse_executed(step_kind step, failure why) {
    return {.step = step, .why = std::move(why)};
}

/// Returns the refusal of the operation with this index, which PostgreSQL executed or for which no time was left.
write_refusal refuse_operation(std::size_t index, failure why) {
    why.facts["operation"] = index;
    return refuse_executed(step_kind::operation, std::move(why));
}

/// Returns the step that PostgreSQL refused. Only where `seen.error`.
const transaction_step& failed_step(const transaction_plan& plan, const transcript& seen) {
    LOCKCORE_INVARIANT(seen.failed < plan.steps.size());
    return plan.steps[seen.failed];
}

/// Reads the answers of one write's steps, as far as there are any.
class evaluation {
  public:
    evaluation(const transaction_plan& plan, const planned_write& write, std::size_t index, transcript& seen,
               const std::vector<joined_answer>& joined)
        : plan_(plan), write_(write), steps_(plan.writes[index]), index_(index), seen_(seen), joined_(joined) {}

    write_verdict perform() {
        write_verdict out;
        out.unchanged = changed_nothing();  // before the texts are moved out
        out.refusal = read_key();
        if (!out.refusal) out.refusal = read_fences();
        if (!out.refusal) out.refusal = read_guard();
        for (std::size_t i = 0; !out.refusal && i < write_.statements.operations.size(); ++i)
            out.refusal = read_operation(i);
        if (!out.refusal) out.refusal = read_failure();
        if (out.refusal || seen_.error || seen_.answers.size() < steps_.end) return out;
        outcome_.write_id = write_.request->write_id;
        outcome_.token = write_.request->token;
        if (write_.seals()) mark_sealed(outcome_);
        out.outcome = std::move(outcome_);
        return out;
    }

  private:
    std::optional<write_refusal> read_key() {
        if (!steps_.key_row || plan_.key_step >= seen_.answers.size()) return std::nullopt;
        const auto& rows = seen_.answers[plan_.key_step];
        auto earlier = read_key_state(rows.text(*steps_.key_row, key_column::state),
                                      rows.text(*steps_.key_row, key_column::outcome));
        if (!earlier) return std::nullopt;
        return write_refusal{.step = step_kind::claim_keys, .earlier = std::move(earlier)};
    }

    std::optional<write_refusal> read_fences() const {
        if (!steps_.read_fences || *steps_.read_fences >= seen_.answers.size()) return std::nullopt;
        const auto token = lockcore::value_of(write_.request->token);
        for (const auto& fence : read_raised_fences(seen_.answers[*steps_.read_fences])) {
            if (fence.last_fencing_token <= token) continue;
            return refuse_executed(step_kind::read_fences,
                                   pg::stale_token(write_.request->token, fence, "nothing was changed"));
        }
        return std::nullopt;
    }

    std::optional<write_refusal> read_guard() {
        if (steps_.guard >= seen_.answers.size()) return std::nullopt;
        const auto& rows = seen_.answers[steps_.guard];
        const int first = steps_.joined_guard_row.value_or(0);
        const int end = steps_.joined_guard_row ? first + 1 : rows.size();
        bool accepted = true;
        for (int row = first; row < end; ++row) {
            auto& fence = outcome_.fences.emplace_back();
            fence.resource = rows.text(row, guard_column::resource);
            fence.last_fencing_token = std::strtoull(rows.text(row, guard_column::last_fencing_token), nullptr, 10);
            accepted = accepted && is_true(rows.text(row, guard_column::accepted));
        }
        if (accepted) return std::nullopt;
        return refuse_executed(step_kind::guard, stale_token(*write_.request, outcome_.fences));
    }

    std::optional<write_refusal> read_operation(std::size_t i) {
        const auto step = steps_.first_operation + i;
        if (step >= seen_.answers.size()) return std::nullopt;
        const auto& statement = write_.statements.operations[i];
        operation_result done;
        if (steps_.joined_update) {
            LOCKCORE_INVARIANT(*steps_.joined_update < joined_.size());
            const auto changed = joined_[*steps_.joined_update].changed(steps_.position);
            // Its row changed to another resource: running the write isolated decides whether that is allowed.
            if (!changed) return refuse_executed(step_kind::operation, failure{});
            done.rows_affected = *changed;
        } else {
            const auto text = seen_.texts.find(step);
            auto read =
                read_result(statement.shape, seen_.answers[step], text == seen_.texts.end() ? nullptr : &text->second);
            if (!read) return refuse_operation(i, read.error());
            done = std::move(*read);
        }
        if (auto unexpected = check_rows(statement, done.rows_affected, done.total))
            return refuse_operation(i, std::move(*unexpected));
        outcome_.results.push_back(std::move(done));
        return std::nullopt;
    }

    /// Whether the operations are known to have changed nothing: all are answered, and no row was affected.
    bool changed_nothing() const {
        const auto& operations = write_.statements.operations;
        for (std::size_t i = 0; i < operations.size(); ++i) {
            const auto step = steps_.first_operation + i;
            if (step >= seen_.answers.size() || !operations[i].changes_rows_only) return false;
            if (steps_.joined_update) {
                if (joined_[*steps_.joined_update].changed(steps_.position) != 0) return false;
                continue;
            }
            const auto text = seen_.texts.find(step);
            const auto* receiver = text == seen_.texts.end() ? nullptr : &text->second;
            if (receiver != nullptr && receiver->refused()) return false;
            if (rows_affected(operations[i].shape, seen_.answers[step], receiver) != 0) return false;
        }
        return true;
    }

    std::optional<write_refusal> read_failure() const {
        if (seen_.error) {
            const auto& step = failed_step(plan_, seen_);
            if (step.write == index_) return refuse_for_error(*seen_.error, &step);
        } else if (seen_.out_of_time) {
            LOCKCORE_INVARIANT(seen_.answers.size() < plan_.steps.size());
            return refuse_operation(plan_.steps[seen_.answers.size()].operation,
                                    unavailable("PostgreSQL did not finish before the call's deadline; nothing was "
                                                "changed."));
        }
        return std::nullopt;
    }

    const transaction_plan& plan_;
    const planned_write& write_;
    const write_steps& steps_;
    std::size_t index_;
    transcript& seen_;
    const std::vector<joined_answer>& joined_;
    write_outcome outcome_;
};

/// Returns the joined update that PostgreSQL refused to prepare; null if there is none.
const planned_joined_update* find_unpreparable(const transaction_plan& plan, const transcript& seen) {
    if (!seen.error || !seen.unprepared || is_timeout_or_deadlock(seen.error->sqlstate)) return nullptr;
    const auto& failed = failed_step(plan, seen);
    const bool is_joined = failed.joined_update && failed.kind == step_kind::operation;
    return is_joined ? &plan.joined_updates[*failed.joined_update] : nullptr;
}

/// Whether a step that serves several writes failed, or a joined update was not allowed, so that the writes have to run
/// one by one. Sets the members of `out` that say so.
bool must_separate(const transaction_plan& plan, const transcript& seen, batch_verdict& out) {
    if (const auto* update = find_unpreparable(plan, seen)) {
        out.unjoinable.push_back(update->single_update);  // others may still be joined
        return true;
    }
    if (seen.error) {
        const auto& failed = failed_step(plan, seen);
        out.separate_guards = failed.kind == step_kind::guards;
        out.separate_updates = failed.joined_update.has_value();
        out.separate_checks = failed.kind == step_kind::constraints && !failed.write;
    }
    for (const auto& update : plan.joined_updates) {
        if (update.recheck >= seen.answers.size() || is_true(seen.answers[update.recheck].text(0, 0))) continue;
        out.unjoinable.push_back(update.single_update);
        out.separate_updates = true;
    }
    return out.separate_guards || out.separate_updates || out.separate_checks;
}

/// What becomes of a refused write. `behind_change`: an earlier write may have changed rows of its resources.
batch_change change_of(const write_verdict& verdict, const planned_write& write, const write_steps& steps,
                       std::size_t index, bool behind_change) {
    if (!verdict.unchanged || verdict.refusal->why.code != errc::expectation_failed) return batch_change::leaves;
    if (!behind_change) return batch_change::refused;
    if (!steps.entered) return batch_change::refused_in_place;
    const bool continues_lease = steps.joined_guard_row && !steps.joined_update && steps.entered_for != index;
    return continues_lease && !write.presumed_refused ? batch_change::presumed_refused : batch_change::leaves;
}

}  // namespace

history_item failed_item(const write_request& request, const write_refusal& refusal,
                         std::chrono::system_clock::time_point now) {
    boost::json::object detail;
    detail["error"] = slug_of(refusal.why.code);
    if (refusal.sqlstate) detail["sqlstate"] = *refusal.sqlstate;
    if (const auto* resource = refusal.why.facts.if_contains("resource")) detail["resource"] = *resource;
    if (request.bare_token) detail["bare_token"] = true;
    add_wanted(request, detail);
    if (const auto* operation = refusal.why.facts.if_contains("operation")) detail["operation"] = *operation;
    history_item item;
    const bool is_stale_read = refusal.step == step_kind::read_fences && !refusal.sqlstate;
    const bool is_rejected = is_stale_read || (refusal.sqlstate && refusal.sqlstate->starts_with("FG"));
    item.event = is_rejected ? "write_rejected" : "write_failed";
    item.at = now;
    item.resource = request.resources.front().str();
    const auto* fence = refusal.why.facts.if_contains("last_fencing_token");
    if (is_stale_read && fence != nullptr) {
        item.resource = std::string(refusal.why.facts.at("resource").as_string());
        item.last_fencing_token = fence->to_number<std::uint64_t>();
    }
    item.fencing_token = lockcore::value_of(request.token);
    item.initiator = request.initiator;
    item.write_id = request.write_id;
    item.detail = boost::json::serialize(detail);
    return item;
}

bool gives_text(answer_shape shape) {
    return shape == answer_shape::rows || shape == answer_shape::value;
}

bool executed_user_code(const transaction_plan& plan, const transcript& seen) {
    LOCKCORE_INVARIANT(seen.answers.size() <= plan.steps.size());
    const auto answered = plan.steps.begin() + static_cast<std::ptrdiff_t>(seen.answers.size());
    return std::any_of(plan.steps.begin(), answered, [](const auto& step) { return step.runs_user_code; }) ||
           (seen.error && seen.error->in_code && failed_step(plan, seen).runs_user_code);
}

bool allows_next(const transaction_plan& plan, const transcript& seen, std::size_t index) {
    const auto& step = plan.steps[index];
    const auto& rows = seen.answers[index];
    const auto all_rows = [&rows](int column, auto holds) {
        for (int row = 0; row < rows.size(); ++row) {
            if (!holds(rows.text(row, column))) return false;
        }
        return true;
    };
    if (step.kind == step_kind::claim_keys)
        return all_rows(key_column::state, [](std::string_view state) { return state == "new"; });
    if (step.kind == step_kind::read_fences) return all_rows(raised_column::accepted, is_true);
    if (step.kind == step_kind::guard) return all_rows(guard_column::accepted, is_true);
    const auto text = seen.texts.find(index);
    if (text != seen.texts.end() && text->second.refused()) return false;
    if (step.statement == nullptr || (!step.statement->expect_rows && !step.statement->rows_max)) return true;
    const auto* receiver = text == seen.texts.end() ? nullptr : &text->second;
    const auto affected = rows_affected(step.statement->shape, rows, receiver);
    return !check_rows(*step.statement, affected, receiver ? total_of(*receiver) : std::nullopt);
}

result<operation_result> read_result(answer_shape shape, const answer_rows& rows, text_receiver* text) {
    if (gives_text(shape)) return read_text(shape, *text);
    operation_result out;
    if (shape == answer_shape::affected) {
        out.rows_affected = rows.affected();
    } else {
        out.is_call = out.is_void = true;
        out.json = "null";
    }
    return out;
}

bool is_timeout_or_deadlock(std::string_view sqlstate) {
    return sqlstate == "55P03" || sqlstate == "57014" || sqlstate == "40P01";
}

write_verdict evaluate_write(const transaction_plan& plan, const planned_write& write, transcript& seen) {
    return evaluation(plan, write, 0, seen, {}).perform();
}

batch_verdict evaluate_batch(const transaction_plan& plan, const std::vector<planned_write>& writes, transcript& seen) {
    batch_verdict out;
    out.changes.assign(writes.size(), batch_change::stays);
    out.waited = seen.error && is_timeout_or_deadlock(seen.error->sqlstate);
    if (must_separate(plan, seen, out)) return out;
    const auto* failed = seen.error ? &failed_step(plan, seen) : nullptr;
    if (failed != nullptr && !failed->write) {
        out.changes.assign(writes.size(), batch_change::leaves);
        return out;
    }
    std::vector<joined_answer> joined;
    for (const auto& planned : plan.joined_updates) {
        if (planned.update < seen.answers.size()) joined.emplace_back(seen.answers[planned.update], planned.writes);
    }
    const std::string* locked = nullptr;  // the resource of the write that waited
    std::set<std::string_view> changed;   // the resources whose rows an earlier write may have changed
    out.complete = !seen.error;
    for (std::size_t i = 0; i < writes.size(); ++i) {
        auto verdict = evaluation(plan, writes[i], i, seen, joined).perform();
        const auto& resources = writes[i].request->resources;
        const auto is_changed = [&](const auto& resource) { return changed.contains(resource.str()); };
        auto& change = out.changes[i];
        if (verdict.refusal) {
            change = change_of(verdict, writes[i], plan.writes[i], i, std::ranges::any_of(resources, is_changed));
        } else if (verdict.outcome && !plan.writes[i].entered) {  // not refused again: the history lacks its row
            verdict.outcome.reset();
            change = batch_change::leaves;
        }
        out.complete = out.complete && (verdict.outcome || change == batch_change::refused_in_place);
        if (change == batch_change::refused || change == batch_change::refused_in_place)
            out.refusals.emplace(i, std::move(*verdict.refusal));
        if (!verdict.unchanged) {
            for (const auto& resource : resources)
                changed.insert(resource.str());
        }
        if (out.waited && failed->write == i) locked = &writes[i].resource();
        // Later writes on its resource would wait for the same lock.
        if (locked != nullptr && !verdict.outcome && writes[i].resource() == *locked) change = batch_change::leaves;
        if (verdict.outcome) out.outcomes.emplace(i, std::move(*verdict.outcome));
    }
    LOCKCORE_INVARIANT(!out.complete || out.outcomes.size() + out.refusals.size() == writes.size());
    return out;
}

write_refusal refuse_for_error(const server_error& error, const transaction_step* step) {
    write_refusal out;
    out.step = step != nullptr ? step->kind : step_kind::commit;
    out.sqlstate = error.sqlstate;
    if (step != nullptr && step->in_callers_role) {
        if (auto refused = refusal_of_role(error)) {
            out.why = std::move(*refused);
            return out;
        }
    }
    const auto* statement = step != nullptr ? step->statement : nullptr;
    if (statement == nullptr) {
        out.why = to_failure(error);
        return out;
    }
    out.why = to_failure(error, statement->sql);
    const bool no_index = error.sqlstate == "42P10" && !statement->on_conflict.empty();
    if (out.why.code == errc::unprocessable && out.why.errors.empty())
        out.why.errors.push_back({no_index ? statement->on_conflict : statement->pointer, out.why.detail});
    out.why.facts["operation"] = step->operation;
    return out;
}

refusal_handling handle_refusal(const write_request& request, write_refusal& refusal,
                                std::chrono::system_clock::time_point now) {
    refusal_handling out;
    switch (refusal.step) {
        case step_kind::begin:
        case step_kind::timeouts:
            return out;
        case step_kind::claim_keys:
        case step_kind::savepoint:
        case step_kind::read_fences:
        case step_kind::guard:
            if (refusal.earlier) return out;
            if (!refusal.sqlstate && refusal.step == step_kind::read_fences) break;
            if (!refusal.sqlstate) {
                out.end = refusal_end::commit;
                return out;
            }
            if (*refusal.sqlstate == "42501") return out;  // so the history can't be written either
            // The function was replaced by a migration while the gateway runs: a new session prepares the call again.
            if (refusal.sqlstate->starts_with("42") || *refusal.sqlstate == "0A000" || *refusal.sqlstate == "3F000") {
                out.drop_session = true;
                if (refusal.why.facts.contains("cause")) return out;
                refusal.why = unavailable(
                    "The guard in PostgreSQL can't be called (see the gateway's log); nothing was changed.");
                return out;
            }
            break;
        case step_kind::commit:
            out.end = refusal_end::none;
            break;
        default:
            if (request.key && is_kept(refusal.why)) out.end = refusal_end::rollback_to_savepoint;
            break;
    }
    out.record = failed_item(request, refusal, now);
    return out;
}

}  // namespace fencegate::pg
