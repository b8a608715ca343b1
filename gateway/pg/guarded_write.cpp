#include <gateway/pg/commit_resolver.hpp>
#include <gateway/pg/guard_call.hpp>
#include <gateway/pg/guarded_write.hpp>
#include <gateway/pg/history_writer.hpp>
#include <gateway/pg/kept_outcome.hpp>
#include <gateway/pg/sqlstate_map.hpp>
#include <gateway/pg/text_receiver.hpp>
#include <gateway/pg/write_sql.hpp>

#include <spdlog/spdlog.h>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include <algorithm>
#include <optional>
#include <string>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

/// The state of one write while it runs.
class write_run {
  public:
    write_run(session_slot& slot, memory_budget& answers, const write_request& request, deadline until)
        : slot_(slot), answers_(answers), request_(request), until_(until) {}

    /// Throws session_lost only where nothing can have been changed.
    result<write_outcome> perform(const write_plan& plan) {
        begin();
        if (request_.repeatable) {
            if (auto earlier = claim()) return std::move(*earlier);
        }
        auto fences = enter();
        if (!fences) return fences.error();
        write_outcome outcome;
        outcome.write_id = request_.write_id;
        outcome.token = request_.token;
        outcome.fences = std::move(*fences);
        for (std::size_t i = 0; i < plan.operations.size(); ++i) {
            auto one = operate(plan.operations[i], i);
            if (!one) return one.error();
            outcome.results.push_back(std::move(*one));
        }
        if (auto failed = conclude(outcome)) return std::move(*failed);
        if (auto failed = commit()) return std::move(*failed);
        return outcome;
    }

    /// Writes the row of history for a write that failed, and keeps the refusal under the write's key: in the
    /// transaction that has the key, or else in one of its own. Its commit also shows that what the refusal tells is on
    /// disk; where it fails `why` is marked unproven.
    void record(failure& why) {
        try {
            append_history(slot_.get(), {*failed_item_});
            if (!keyed_) return;
            slot_.get().exec(keep_outcomes_sql(), keep_outcomes_parameters({{&request_, kept_text(request_, why)}}));
            slot_.get().command("commit");
        } catch (const std::exception&) {
            spdlog::warn("the failure of write {} is missing from the history", request_.write_id);
            why.unproven = true;
            if (keyed_) slot_.drop();
        }
    }

    /// The row of history that a write needs which failed after it had entered; none where perform() gave no failure of
    /// that kind.
    const std::optional<history_item>& failed_item() const { return failed_item_; }

    /// The code with which the operation failed, if PostgreSQL refused it.
    const std::string& failed_sqlstate() const { return failed_sqlstate_; }

  private:
    void begin() {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - clock::now());
        std::string sql = "begin";
        // In the same round trip, and only where the session's own timeout would come too late.
        if (left < slot_.settings().statement_timeout) {
            sql += ";set local statement_timeout = " + std::to_string(std::max<std::int64_t>(left.count(), 1));
        }
        try {
            slot_.get().command(sql);
        } catch (const session_lost&) {
            // It died unnoticed since its last use, and nothing but BEGIN was sent: once more on a new one is safe.
            slot_.connect().command(sql);
        }
    }

    void rollback() {
        keyed_ = false;
        try {
            slot_.get().command("rollback");
        } catch (const std::exception&) {
            slot_.drop();  // ends the transaction as well
        }
    }

    /// Takes the write's key; not empty: what to answer in place of writing.
    std::optional<result<write_outcome>> claim() {
        std::optional<result<write_outcome>> earlier;
        try {
            const auto rows = slot_.get().exec(claim_keys_sql(), claim_keys_parameters({&request_}));
            earlier = read_claim(rows[0][0].c_str(), rows[0][1].c_str());
            if (!earlier) slot_.get().command("savepoint claimed");
        } catch (const statement_failed& e) {
            return guard_failed(e);
        }
        keyed_ = !earlier;
        if (earlier) rollback();
        return earlier;
    }

    /// Takes back what was done. A refusal that is to be kept needs the transaction: it goes on without what the write
    /// did, and still has the key.
    void undo(const failure& why) {
        if (!keyed_ || !is_kept(why)) return rollback();
        try {
            slot_.get().command("rollback to savepoint claimed");
        } catch (const std::exception&) {
            rollback();
        }
    }

    failure guard_failed(const statement_failed& e) {
        rollback();
        // The function itself does not fit any more (a migration under a running gateway): a new session plans it
        // anew.
        if (e.error.sqlstate.starts_with("42") || e.error.sqlstate == "0A000") {
            slot_.drop();
            spdlog::error("the guard can't be called: {} {}", e.error.sqlstate, e.error.message);
            return unavailable("The guard in PostgreSQL does not answer as it should; nothing was changed.");
        }
        failed_sqlstate_ = e.error.sqlstate;
        return fail(to_failure(e.error), std::nullopt);
    }

    result<std::vector<fence_state>> enter() {
        std::vector<fence_state> fences;
        bool accepted = true;
        try {
            for (const auto& row : slot_.get().exec(begin_write_sql(), begin_write_parameters(request_))) {
                fence_state fence;
                fence.resource = row[0].c_str();
                fence.last_fencing_token = row[1].as<std::uint64_t>();
                fences.push_back(std::move(fence));
                accepted = accepted && row[2].as<bool>();
            }
        } catch (const statement_failed& e) {
            return guard_failed(e);
        }
        if (accepted) return fences;
        failure why = stale(fences);
        try {
            slot_.get().command("commit");  // keeps the refusal in the history
        } catch (const std::exception&) {
            why.unproven = true;
            spdlog::warn("the refusal of write {} may be missing from the history: the commit failed",
                         request_.write_id);
            slot_.drop();
        }
        return why;
    }

    failure stale(const std::vector<fence_state>& fences) const {
        failure out = make_failure(errc::stale_fencing_token,
                                   "The fencing token is older than the resource's fence; nothing was changed.");
        out.facts["fencing_token"] = lockcore::value_of(request_.token);
        for (const auto& fence : fences) {
            if (fence.last_fencing_token <= lockcore::value_of(request_.token)) continue;
            out.facts["resource"] = fence.resource;
            out.facts["last_fencing_token"] = fence.last_fencing_token;
            break;
        }
        return out;
    }

    result<operation_result> operate(const planned_operation& planned, std::size_t index) {
        if (clock::now() >= until_) {
            rollback();
            return fail(unavailable("PostgreSQL was not done in the time that the call may take; nothing was changed."),
                        index);
        }
        operation_result out;
        try {
            auto& via = slot_.get();
            if (std::holds_alternative<call_operation>(request_.operations[index])) via.let_application_in();
            auto done = run_operation(via, planned);
            if (!done) {
                rollback();
                return fail(done.error(), index);
            }
            out = std::move(*done);
        } catch (const statement_failed& e) {
            failed_sqlstate_ = e.error.sqlstate;
            log_for_operator(e.error);
            failure why = to_failure(e.error, planned.sql);
            const bool no_index = e.error.sqlstate == "42P10" && !planned.on_conflict.empty();
            if (why.code == errc::unprocessable && why.errors.empty())
                why.errors.push_back({no_index ? planned.on_conflict : planned.pointer, why.detail});
            undo(why);
            return fail(std::move(why), index);
        }
        if (planned.expect_rows && *planned.expect_rows != out.rows_affected) {
            failure other =
                make_failure(errc::expectation_failed, "Another number of rows than expected; nothing was changed.");
            other.facts["expected_rows"] = *planned.expect_rows;
            other.facts["rows_affected"] = out.rows_affected;
            undo(other);
            return fail(std::move(other), index);
        }
        return out;
    }

    result<operation_result> run_operation(session& via, const planned_operation& planned) {
        if (planned.shape == answer_shape::rows || planned.shape == answer_shape::value) {
            text_receiver receiver(answers_, request_.by.principal);
            via.receive(planned.sql.sql, planned.sql.parameters, receiver);
            return read_text(planned.shape, receiver);
        }
        operation_result out;
        const auto rows = via.exec(planned.sql.sql, planned.sql.parameters);
        if (planned.shape == answer_shape::affected) {
            out.rows_affected = static_cast<std::int64_t>(rows.affected_rows());
        } else {
            out.is_call = true;
            out.is_void = true;
            out.json = "null";
        }
        return out;
    }

    /// Notes for the history what failed. `index` of the operation, none for the commit.
    failure fail(failure why, std::optional<std::size_t> index) {
        boost::json::object detail;
        detail["error"] = slug_of(why.code);
        if (!failed_sqlstate_.empty()) detail["sqlstate"] = failed_sqlstate_;
        if (const auto* resource = why.facts.if_contains("resource")) detail["resource"] = *resource;
        if (request_.bare_token) detail["bare_token"] = true;
        if (index) {
            why.facts["operation"] = *index;
            detail["operation"] = *index;
        }
        auto& item = failed_item_.emplace();
        item.event = failed_sqlstate_.starts_with("FG") ? "write_rejected" : "write_failed";
        item.at = std::chrono::system_clock::now();
        item.resource = request_.resources.front().str();
        item.fencing_token = lockcore::value_of(request_.token);
        item.by = request_.by;
        item.write_id = request_.write_id;
        item.detail = boost::json::serialize(detail);
        return why;
    }

    /// What belongs into the transaction behind the operations. Empty: ready to be committed.
    std::optional<failure> conclude(write_outcome& outcome) {
        try {
            if (request_.seal) {
                slot_.get().exec(seal_sql(), seal_parameters({&request_}));
                mark_sealed(outcome);
            }
            if (!keyed_) return std::nullopt;
            // Whatever would refuse the commit is to speak while the refusal can still be kept.
            slot_.get().command("set constraints all immediate");
            slot_.get().exec(keep_outcomes_sql(),
                             keep_outcomes_parameters({{&request_, kept_text(request_, outcome)}}));
            return std::nullopt;
        } catch (const statement_failed& e) {
            failed_sqlstate_ = e.error.sqlstate;
            log_for_operator(e.error);
            failure why = to_failure(e.error);
            undo(why);
            return fail(std::move(why), std::nullopt);
        }
    }

    /// Empty: committed.
    std::optional<failure> commit() {
        try {
            return failure_of(commit_write(slot_, request_.write_id, request_.resources.front().str(), until_));
        } catch (const statement_failed& e) {
            keyed_ = false;  // PostgreSQL has rolled back
            failed_sqlstate_ = e.error.sqlstate;
            return fail(to_failure(e.error), std::nullopt);
        }
    }

    session_slot& slot_;
    memory_budget& answers_;
    const write_request& request_;
    deadline until_;
    std::string failed_sqlstate_;
    std::optional<history_item> failed_item_;
    bool keyed_ = false;  ///< The transaction is open and has the write's key.
};

/// Whether the catalog has changed since `known` was read, so that a statement built from it may have failed for that
/// reason.
bool outdated(session_slot& slot, catalog_store& catalogs, const std::shared_ptr<const catalog>& known) {
    try {
        return catalogs.refresh(slot.get(), known)->source != known->source;
    } catch (const std::exception&) {
        return false;
    }
}

}  // namespace

result<write_outcome> run_write(session_slot& slot, catalog_store& catalogs, memory_budget& answers,
                                const write_request& request, deadline until) {
    if (request.resources.empty()) return make_failure(errc::internal_error, "A guarded write names no resource.");
    for (bool first = true;; first = false) {
        auto known = catalogs.get(slot.get());
        auto plan = plan_write(*known, request.operations, {request.return_rows, request.select});
        if (plan.unknown_name) {
            known = catalogs.refresh(slot.get(), known);
            plan = plan_write(*known, request.operations, {request.return_rows, request.select});
        }
        if (!plan.faults.empty()) {
            // It may have fitted when it was sent first.
            if (request.repeatable) {
                const key_of key{request.by.principal, *request.repeatable};
                auto earlier = find_kept(slot.get(), {&key}).front();
                if (earlier) return std::move(*earlier);
            }
            return plan_failure(plan);
        }

        write_run run(slot, answers, request, until);
        auto outcome = run.perform(plan);
        if (!run.failed_item()) return outcome;
        if (first && may_be_outdated(run.failed_sqlstate()) && outdated(slot, catalogs, known)) {
            slot.drop();  // prepared statements keep the types that they were prepared with
            continue;
        }
        failure why = outcome.error();
        run.record(why);
        return why;
    }
}

}  // namespace fencegate::pg
