#include <gateway/pg/connection/sqlstate_map.hpp>
#include <gateway/pg/connection/text_receiver.hpp>
#include <gateway/pg/history/history_writer.hpp>
#include <gateway/pg/read/table_reader.hpp>
#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/guard_call.hpp>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

namespace fencegate::pg {
namespace {

using clock = std::chrono::steady_clock;

const std::string begin_plain_sql = "begin read only";
const std::string begin_fenced_sql = "begin";
const std::string commit_sql = "commit";
const std::string rollback_sql = "rollback";
const std::string timeout_sql = "select set_config('statement_timeout', $1, true)";
const std::string reason = "fenced read";
const compat::parameters no_parameters;

std::string name_of(const read_request& request) {
    struct {
        std::string operator()(const table_query& query) const { return "select " + query.table; }
        std::string operator()(const function_query& query) const { return "select " + query.function; }
    } name;
    return std::visit(name, request.query);
}

failure failure_of_read(const read_statement& statement) {
    const auto& first = statement.faults.front();
    if (first.pointer != "table" && first.pointer != "function")
        return failure_for_faults(statement, errc::unprocessable, "The request does not fit what is exposed.");
    failure out = failure_for_faults(statement, errc::not_found, first.detail);
    out.errors.clear();
    return out;
}

failure too_large() {
    failure out = make_failure(errc::unprocessable,
                               "The answer is larger than the gateway gives; ask for fewer rows or columns.");
    out.facts["answer_bytes_max"] = answer_bytes_max;
    return out;
}

/// One attempt to run a read.
class read_run {
  public:
    read_run(session_slot& slot, const read_request& request, const read_statement& statement, text_receiver receiver,
             deadline until)
        : slot_(slot), request_(request), statement_(statement), receiver_(std::move(receiver)), until_(until) {}

    result<read_outcome> perform() {
        auto& session = slot_.get();
        state_.server_ran_at = clock::now();
        std::vector<prepared_call> calls;
        try {
            calls = prepare_calls(session);
        } catch (const statement_failed& e) {
            failed_ = e.error;
            return to_failure(e.error, statement_.sql);
        }
        // Policies may keep the claims of a caller.
        if (request_.identity || std::holds_alternative<function_query>(request_.query))
            session.mark_user_code_executed();
        const auto sent_at = clock::now();
        state_.server_ran_at = sent_at;
        const auto trip =
            session.run(calls, request_.fence ? statement_errors::usable_session : statement_errors::read_only);
        if (trip.error) {
            session.command(rollback_sql);
            failed_ = *trip.error;
            if (failed_.sqlstate == "25006") {
                return make_failure(errc::unprocessable, "A read may not change anything; nothing was changed.");
            }
            // PostgreSQL may also refuse the size itself, and a function may raise 54000 for a reason of its own.
            if (failed_.sqlstate == "54000" && (std::holds_alternative<table_query>(request_.query) ||
                                                trip.error->message == "requested length too large"))
                return too_large();
            // Taking the role failed, or a statement in it; earlier steps ran in the gateway's own.
            const auto failed = trip.answers.size();
            const bool in_callers_role = failed + 1 >= read_at_ && failed <= (estimate_at_ ? *estimate_at_ : read_at_);
            if (request_.identity && in_callers_role) {
                if (auto refused = refusal_of_role(*trip.error)) return std::move(*refused);
            }
            return failed == read_at_ ? to_failure(*trip.error, statement_.sql) : to_failure(*trip.error);
        }
        state_ = read_snapshot_state(slot_, trip.answers[snapshot_at_], sent_at);
        read_outcome out;
        if (request_.fence) {
            out.fences = read_raised_fences(trip.answers[raised_at_]);
            if (auto why = check_token(out.fences)) {
                session.command(rollback_sql);
                record(*why);
                return std::move(*why);
            }
            if (auto why = read_answer(out)) {
                session.command(rollback_sql);
                return std::move(*why);
            }
            // Where no fence was raised nothing has to be committed, and no commit has to be awaited.
            const bool any_raised = has_raised(trip.answers[raised_at_]);
            session.command(any_raised ? commit_sql : rollback_sql);
            if (any_raised) state_.seen = snapshot_state::durability::durable;
        } else if (auto why = read_answer(out)) {
            return std::move(*why);
        }
        if (estimate_at_) add_estimate(read_estimate(trip.answers[*estimate_at_].text(0, 0)), out);
        return out;
    }

    /// The state of the snapshot of the read, or of a refusal that follows from it. Where PostgreSQL refused the
    /// statement only `server_ran_at` is set.
    const snapshot_state& state() const { return state_; }

    /// The error with which PostgreSQL refused the read; without a SQLSTATE if it did not.
    const server_error& failed() const { return failed_; }

  private:
    std::vector<prepared_call> prepare_calls(session& session) {
        std::vector<prepared_call> calls;
        // Prepared before the transaction begins: a statement that can't be prepared fails by itself.
        const auto read = session.prepare(statement_.sql.sql);
        const auto& estimate = statement_.estimate;
        const auto estimated = estimate.sql.empty() ? std::string() : session.prepare(estimate.sql);
        calls.push_back({session.prepare(request_.fence ? begin_fenced_sql : begin_plain_sql), &no_parameters});
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(until_ - clock::now());
        if (left < slot_.settings().statement_timeout) {
            timeout_ = {std::to_string(std::max<std::int64_t>(left.count(), 1))};
            calls.push_back({session.prepare(timeout_sql), &timeout_});
        }
        if (request_.fence) {
            raise_ = raise_fences_parameters(request_.fence->fences, request_.fence->initiator, reason);
            raised_at_ = calls.size();
            calls.push_back({session.prepare(raise_fences_sql(request_.fence->fences)), &raise_});
        }
        if (request_.identity) {
            role_ = take_role_parameters(*request_.identity);
            calls.push_back({session.prepare(take_role_sql), &role_});
        }
        read_at_ = calls.size();
        calls.push_back(
            {read, &statement_.sql.parameters, statement_.shape == answer_shape::nothing ? nullptr : &receiver_});
        if (!estimate.sql.empty()) {
            estimate_at_ = calls.size();
            calls.push_back({estimated, &estimate.parameters});
        }
        if (request_.identity) calls.push_back({session.prepare(leave_role_sql), &no_parameters});
        snapshot_at_ = calls.size();
        calls.push_back({session.prepare(snapshot_state_sql()), &no_parameters});
        if (!request_.fence) calls.push_back({session.prepare(commit_sql), &no_parameters});
        return calls;
    }

    /// Rows that were counted up to a limit, which the number has reached, are more than that. There are at least as
    /// many as are in the answer or before it.
    void add_estimate(std::int64_t planned, read_outcome& out) const {
        const auto& query = std::get<table_query>(request_.query);
        const auto seen = out.rows > 0 ? query.offset + out.rows : 0;
        if (!out.total || *out.total > query.counted_max) out.total = std::max({planned, out.total.value_or(0), seen});
    }

    static bool has_raised(const answer_rows& rows) {
        for (int row = 0; row < rows.size(); ++row) {
            if (rows.text(row, raised_column::raised)[0] == 't') return true;
        }
        return false;
    }

    std::optional<failure> check_token(const std::vector<fence_state>& fences) const {
        const auto token = lockcore::value_of(request_.fence->fences.token);
        const auto newer =
            std::ranges::find_if(fences, [token](const auto& f) { return f.last_fencing_token > token; });
        if (newer == fences.end()) return std::nullopt;
        return stale_token(request_.fence->fences.token, *newer, "nothing was read");
    }

    /// Adds the refusal to the history, as refusals of writes are.
    void record(failure& why) {
        history_item item;
        item.event = "write_rejected";
        item.at = std::chrono::system_clock::now();
        item.resource = std::string(why.facts.at("resource").as_string());
        item.fencing_token = lockcore::value_of(request_.fence->fences.token);
        item.last_fencing_token = why.facts.at("last_fencing_token").to_number<std::uint64_t>();
        item.initiator = request_.fence->initiator;
        item.detail = R"({"error":"stale-fencing-token","operations":[")" + name_of(request_) + R"("]})";
        try {
            append_history(slot_.get(), item);
            why.in_history = true;
            state_.seen = snapshot_state::durability::durable;  // the row's commit waited for the disk
        } catch (const std::exception&) {
            spdlog::warn("the refusal of a fenced read is missing from the history");
        }
    }

    std::optional<failure> read_answer(read_outcome& out) {
        if (statement_.shape == answer_shape::nothing) return std::nullopt;
        if (receiver_.refused()) return answers_budget_failure(*receiver_.bytes());
        if (statement_.shape == answer_shape::rows) {
            out.is_set = true;
            out.rows = std::strtoll(receiver_.column(0).value().c_str(), nullptr, 10);
            out.total = total_of(receiver_);
        }
        if (receiver_.complete()) {
            out.json = receiver_.take_text();
            out.memory = receiver_.take_memory();
        } else if (!receiver_.bytes()) {
            out.json = "null";
        } else {
            failure why = too_large();
            why.facts["answer_bytes"] = *receiver_.bytes();
            return why;
        }
        return std::nullopt;
    }

    session_slot& slot_;
    const read_request& request_;
    const read_statement& statement_;
    text_receiver receiver_;
    deadline until_;
    snapshot_state state_;
    compat::parameters timeout_;
    compat::parameters raise_;
    compat::parameters role_;
    std::size_t raised_at_ = 0;
    std::size_t read_at_ = 0;
    std::optional<std::size_t> estimate_at_;
    std::size_t snapshot_at_ = 0;
    server_error failed_;
};

}  // namespace

snapshot_of<read_outcome> run_read(session_slot& slot, catalog_store& catalogs, memory_budget& answers,
                                   const std::string& principal, const read_request& request, deadline until) {
    snapshot_state catalog_state;
    catalog_state.seen = snapshot_state::durability::durable;
    for (bool first = true;; first = false) {
        try {
            auto known = catalogs.get(slot.get());
            auto statement = build_read(*known, request);
            if (statement.unknown_name) {
                known = catalogs.refresh(slot.get(), known);
                statement = build_read(*known, request);
            }
            if (!statement.faults.empty()) return {failure_of_read(statement), catalog_state};
            if (statement.needs_fence) {
                return {
                    make_failure(errc::fencing_required,
                                 "The function may change something: send POST with a lease, or declare it stable."),
                    catalog_state};
            }
            read_run run(slot, request, statement, text_receiver(answers, principal), until);
            auto outcome = run.perform();
            if (first && is_outdated_statement(run.failed()) && !slot.was_cut()) {
                slot.connect();
                continue;
            }
            // The statement may have been built from a catalog that has changed since, also while it was read again.
            const bool outdated = (first || clock::now() < until) && may_be_outdated(run.failed().sqlstate) &&
                                  catalogs.refresh(slot.get(), known) != known;
            if (!outdated) return {std::move(outcome), run.state()};
        } catch (const session_lost&) {
            if (!first || slot.was_cut() || clock::now() >= until) throw;
            slot.connect();
        }
    }
}

}  // namespace fencegate::pg
