#include "pg_fake_session.hpp"

#include <gateway/pg/write/transaction_plan.hpp>
#include <gateway/pg/write/transaction_result.hpp>

#include <gtest/gtest.h>

namespace fencegate::pg {
namespace {

using test::make_affected;
using test::make_catalog;
using test::make_error;
using test::make_request;
using test::make_rows;
using test::row;

/// A plan, and the answers to its steps as they are where all goes well.
class transaction_result_test : public ::testing::Test {
  protected:
    void plan_for(std::vector<write_request> asked, bool isolated = false, bool joins_updates = false) {
        known = make_catalog(joins_updates);
        requests = std::move(asked);
        writes.clear();
        for (const auto& request : requests)
            writes.push_back(
                {&request, build_statements(*known, request.operations, {request.return_rows, request.select})});
        transaction_options options;
        options.isolated = isolated;
        options.known = known.get();
        options.unjoinable = &unjoinable;
        plan = plan_transaction(writes, options);
    }

    answer_rows answer(const transaction_step& step) const {
        switch (step.kind) {
            case step_kind::claim_keys:
                return make_rows({{"new", std::nullopt}, {"new", std::nullopt}});
            case step_kind::read_fences:
                return make_rows({{"s", "7", "t", "t"}});
            case step_kind::guards:
            case step_kind::guard: {
                std::vector<row> rows;
                for (const auto& request : requests)
                    rows.push_back({request.resources.front().str(), "7", "t"});
                return make_rows(rows);
            }
            case step_kind::recheck:
                return make_rows({{"t"}});
            case step_kind::operation: {
                if (!step.joined_update) return make_affected(1);
                std::vector<row> rows;
                for (std::size_t place = 1; place <= requests.size(); ++place)
                    rows.push_back({std::to_string(place), "t"});
                return make_rows(rows);
            }
            default:
                return make_rows({{""}});
        }
    }

    /// Answers up to `end`; `different` replaces the answer at `at`.
    void answer_until(std::size_t end, std::size_t at = npos, std::optional<answer_rows> different = {}) {
        seen = {};
        seen.sent = true;
        for (std::size_t i = 0; i < end; ++i)
            seen.answers.push_back(i == at ? std::move(*different) : answer(plan.steps[i]));
    }

    void fail_at(std::size_t at, const std::string& sqlstate) {
        answer_until(at);
        seen.error = make_error(sqlstate);
        seen.failed = at;
    }

    std::size_t find(step_kind kind, std::size_t write = 0) const {
        for (std::size_t i = 0; i < plan.steps.size(); ++i) {
            if (plan.steps[i].kind == kind && plan.steps[i].write.value_or(write) == write) return i;
        }
        return npos;
    }

    batch_verdict evaluate() { return evaluate_batch(plan, writes, seen); }
    write_verdict evaluate_first() { return evaluate_write(plan, writes.front(), seen); }

    static constexpr std::size_t npos = static_cast<std::size_t>(-1);
    std::shared_ptr<catalog> known;
    unjoinable_updates unjoinable;
    std::vector<write_request> requests;
    std::vector<planned_write> writes;
    transaction_plan plan;
    transcript seen;
};

using changes = std::vector<batch_change>;
constexpr auto stays = batch_change::stays;
constexpr auto leaves = batch_change::leaves;

TEST_F(transaction_result_test, all_answered_complete_with_outcomes) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"})});
    requests[1].seal = true;
    answer_until(plan.steps.size());
    const auto verdict = evaluate();
    ASSERT_TRUE(verdict.complete);
    ASSERT_EQ(verdict.outcomes.size(), 2U);
    EXPECT_EQ(verdict.outcomes.at(0).write_id, "1");
    EXPECT_EQ(verdict.outcomes.at(1).fences.at(0).resource, "b");
    EXPECT_FALSE(verdict.outcomes.at(0).sealed);
    EXPECT_EQ(verdict.outcomes.at(1).fences[0].last_fencing_token, 8U) << "sealed: past its token";
    EXPECT_EQ(verdict.outcomes.at(0).results.at(0).rows_affected, 1);
}

TEST_F(transaction_result_test, operation_refused_only_its_write_leaves) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"})});
    fail_at(find(step_kind::operation, 1), "23505");
    const auto verdict = evaluate();
    EXPECT_FALSE(verdict.complete);
    EXPECT_EQ(verdict.changes, (changes{stays, leaves, stays}));
    EXPECT_FALSE(verdict.waited);
}

TEST_F(transaction_result_test, lock_wait_moves_later_writes_of_the_resource) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"b"}), make_request("4", {"c"})});
    fail_at(find(step_kind::operation, 1), "55P03");
    const auto verdict = evaluate();
    EXPECT_EQ(verdict.changes, (changes{stays, leaves, leaves, stays}));
    EXPECT_TRUE(verdict.waited);
}

TEST_F(transaction_result_test, joined_guard_refused_all_separated) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"})});
    for (const auto* sqlstate : {"55P03", "XX000"}) {
        fail_at(find(step_kind::guards), sqlstate);
        const auto verdict = evaluate();
        EXPECT_EQ(verdict.changes, (changes{stays, stays}));
        EXPECT_TRUE(verdict.separate_guards);
        EXPECT_EQ(verdict.waited, std::string(sqlstate) == "55P03");
    }
}

TEST_F(transaction_result_test, shared_step_refused_all_leave) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"})});
    requests[0].seal = true;
    requests[1].key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    plan_for(std::vector(requests));
    for (const auto kind : {step_kind::begin, step_kind::timeouts, step_kind::claim_keys, step_kind::seal}) {
        fail_at(find(kind), "XX000");
        EXPECT_EQ(evaluate().changes, (changes{leaves, leaves}));
    }
}

TEST_F(transaction_result_test, stale_row_and_known_key_leave) {
    auto keyed = make_request("2", {"b"});
    keyed.key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    plan_for({make_request("1", {"a"}), keyed});
    answer_until(plan.steps.size(), find(step_kind::guards), make_rows({{"a", "9", "f"}, {"b", "7", "t"}}));
    EXPECT_EQ(evaluate().changes, (changes{leaves, stays}));
    answer_until(plan.steps.size(), plan.key_step, make_rows({{"running", std::nullopt}}));
    EXPECT_EQ(evaluate().changes, (changes{stays, leaves}));
}

TEST_F(transaction_result_test, unexpected_row_count_leaves) {
    auto expecting = make_request("1", {"a"});
    std::get<update_operation>(expecting.operations[0]).expect_rows = 2;
    plan_for({expecting, make_request("2", {"b"})});
    answer_until(plan.steps.size());
    EXPECT_EQ(evaluate().changes, (changes{leaves, stays}));
}

TEST_F(transaction_result_test, more_rows_than_allowed_leaves) {
    auto limited = make_request("1", {"a"});
    auto& update = std::get<update_operation>(limited.operations[0]);
    for (const auto& [most, change] : {std::pair{0, leaves}, std::pair{1, stays}}) {
        update.rows_max = most;
        plan_for({limited, make_request("2", {"b"})});
        answer_until(plan.steps.size());
        EXPECT_EQ(evaluate().changes, (changes{change, stays})) << most;
    }
}

TEST_F(transaction_result_test, group_refused_or_changed_all_separated) {
    const std::vector four{make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}),
                           make_request("4", {"d"})};
    plan_for(four, false, true);
    ASSERT_EQ(plan.joined_updates.size(), 1U);
    const auto update = plan.joined_updates[0].update;
    answer_until(plan.steps.size());
    EXPECT_TRUE(evaluate().complete);
    for (const auto at : {update - 1, update, update + 1}) {
        fail_at(at, "22012");
        const auto verdict = evaluate();
        EXPECT_TRUE(verdict.separate_updates);
        EXPECT_TRUE(verdict.unjoinable.empty());
        EXPECT_EQ(verdict.changes, changes(4, stays));
    }
    answer_until(plan.steps.size(), update + 1, make_rows({{"f"}}));
    EXPECT_TRUE(evaluate().separate_updates);
    EXPECT_EQ(evaluate().unjoinable.size(), 1U) << "the table has a trigger now";
    answer_until(plan.steps.size(), update, make_rows({{"1", "t"}, {"2", "f"}, {"3", "t"}, {"3", "t"}}));
    EXPECT_EQ(evaluate().changes, (changes{stays, leaves, stays, stays})) << "the row went to another resource";
}

TEST_F(transaction_result_test, group_not_preparable_only_its_sql_refused) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}), make_request("4", {"d"})},
             false, true);
    seen = {};
    seen.unprepared = true;
    seen.error = make_error("42883");
    seen.failed = plan.joined_updates[0].update;
    const auto verdict = evaluate();
    EXPECT_FALSE(verdict.separate_updates);
    EXPECT_EQ(verdict.unjoinable, (std::vector{plan.joined_updates[0].single_update}));
}

TEST_F(transaction_result_test, group_that_waits_to_be_prepared_is_joined_again) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}), make_request("4", {"d"})},
             false, true);
    seen = {};
    seen.unprepared = true;
    seen.error = make_error("55P03");
    seen.failed = plan.joined_updates[0].update;
    const auto verdict = evaluate();
    EXPECT_TRUE(verdict.waited && verdict.separate_updates);
    EXPECT_TRUE(verdict.unjoinable.empty());
}

TEST_F(transaction_result_test, answer_too_short_throws) {
    plan_for({make_request("1", {"a"}), make_request("2", {"b"})});
    answer_until(plan.steps.size(), find(step_kind::guards), make_rows({{"a", "7", "t"}}));
    EXPECT_THROW(evaluate(), std::out_of_range);
}

TEST_F(transaction_result_test, isolated_each_step_refused_names_it) {
    auto request = make_request("1", {"a"});
    request.operations.push_back(request.operations[0]);
    request.key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    request.seal = true;
    plan_for({request}, true);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
        fail_at(i, "23505");
        const auto verdict = evaluate_first();
        ASSERT_TRUE(verdict.refusal) << i;
        EXPECT_EQ(verdict.refusal->step, plan.steps[i].kind);
        EXPECT_EQ(verdict.refusal->sqlstate, "23505");
        EXPECT_EQ(verdict.refusal->why.code, errc::constraint_violation);
        const auto* operation = verdict.refusal->why.facts.if_contains("operation");
        EXPECT_EQ(operation != nullptr, plan.steps[i].kind == step_kind::operation);
    }
}

TEST_F(transaction_result_test, isolated_known_key_returns_kept_outcome) {
    auto request = make_request("1", {"a"});
    request.key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    plan_for({request}, true);
    answer_until(plan.key_step + 1, plan.key_step, make_rows({{"other", std::nullopt}}));
    EXPECT_FALSE(allows_next(plan, seen, plan.key_step));
    const auto verdict = evaluate_first();
    ASSERT_TRUE(verdict.refusal && verdict.refusal->earlier);
    EXPECT_EQ(verdict.refusal->earlier->error().code, errc::idempotency_mismatch);
}

TEST_F(transaction_result_test, isolated_stale_token_names_the_fence) {
    plan_for({make_request("1", {"a", "b"})}, true);
    const auto guard = find(step_kind::guard);
    answer_until(guard + 1, guard, make_rows({{"a", "7", "t"}, {"b", "9", "f"}}));
    EXPECT_FALSE(allows_next(plan, seen, guard));
    const auto verdict = evaluate_first();
    ASSERT_TRUE(verdict.refusal);
    EXPECT_EQ(verdict.refusal->why.code, errc::stale_fencing_token);
    EXPECT_EQ(verdict.refusal->why.facts.at("resource"), "b");
    EXPECT_EQ(verdict.refusal->why.facts.at("last_fencing_token").to_number<int>(), 9);
}

TEST_F(transaction_result_test, stale_shared_read_stops_the_write) {
    auto request = make_request("1", {"a"});
    request.shared = make_request("", {"s", "t"}).resources;
    plan_for({request}, true);
    const auto read = find(step_kind::read_fences);
    answer_until(find(step_kind::guard) + 1, read, make_rows({{"s", "0", "t", "t"}, {"t", "8", "f", "f"}}));
    EXPECT_FALSE(allows_next(plan, seen, read));
    auto verdict = evaluate_first();
    ASSERT_TRUE(verdict.refusal);
    EXPECT_EQ(verdict.refusal->why.code, errc::stale_fencing_token);
    const auto handling = handle_refusal(request, *verdict.refusal, {});
    EXPECT_EQ(handling.end, refusal_end::rollback) << "what the guard has recorded";
    ASSERT_TRUE(handling.record);
    EXPECT_EQ(handling.record->event, "write_rejected");
    EXPECT_EQ(handling.record->resource, "t");
    EXPECT_EQ(handling.record->last_fencing_token, 8U);
    answer_until(plan.steps.size());
    EXPECT_TRUE(allows_next(plan, seen, read));
    EXPECT_TRUE(evaluate_first().outcome);
}

TEST_F(transaction_result_test, isolated_out_of_time_names_the_operation) {
    auto request = make_request("1", {"a"});
    request.operations.push_back(request.operations[0]);
    plan_for({request}, true);
    answer_until(find(step_kind::operation) + 1);
    seen.out_of_time = true;
    const auto verdict = evaluate_first();
    ASSERT_TRUE(verdict.refusal);
    EXPECT_EQ(verdict.refusal->why.code, errc::storage_unavailable);
    EXPECT_EQ(verdict.refusal->why.facts.at("operation").to_number<int>(), 1);
}

TEST_F(transaction_result_test, isolated_not_sent_has_no_result) {
    plan_for({make_request("1", {"a"})}, true);
    for (std::size_t end = 0; end < plan.steps.size(); ++end) {
        answer_until(end);
        const auto verdict = evaluate_first();
        EXPECT_FALSE(verdict.refusal || verdict.outcome) << end;
    }
}

TEST_F(transaction_result_test, results_become_text_by_shape) {
    EXPECT_EQ(read_result(answer_shape::affected, make_affected(3), nullptr)->rows_affected, 3);
    const auto read = [](answer_shape shape, const row& piece, memory_budget& answers) {
        text_receiver text(answers, "orders");
        text.take(make_rows({piece}));
        return read_result(shape, make_rows({}), &text);
    };
    auto& large = test::large_budget();
    const auto rows = read(answer_shape::rows, {"7", "[{},{}]", "2"}, large);
    EXPECT_EQ(rows->rows_affected, 2);
    EXPECT_EQ(rows->json, "[{},{}]");
    const auto value = read(answer_shape::value, {"2", "17"}, large);
    EXPECT_TRUE(value->is_call);
    EXPECT_EQ(value->json, "17");
    EXPECT_EQ(read(answer_shape::value, {std::nullopt, std::nullopt}, large)->json, "null");
    memory_budget full(0);
    EXPECT_EQ(read(answer_shape::value, {"70000", std::string(70'000, ' ')}, full).error().code, errc::overloaded);
    const auto nothing = read_result(answer_shape::nothing, make_rows({{""}}), nullptr);
    EXPECT_TRUE(nothing->is_call && nothing->is_void);
}

struct refused_step {
    step_kind at;
    const char* sqlstate;
    errc code;
    refusal_end end;
    bool recorded;
};

TEST(refusal_handling_test, each_step_ends_and_is_recorded_as_documented) {
    const std::vector<refused_step> all{
        {step_kind::begin, "57014", errc::storage_unavailable, refusal_end::rollback, false},
        {step_kind::timeouts, "57014", errc::storage_unavailable, refusal_end::rollback, false},
        {step_kind::claim_keys, "57014", errc::storage_unavailable, refusal_end::rollback, true},
        {step_kind::savepoint, "53200", errc::storage_unavailable, refusal_end::rollback, true},
        {step_kind::read_fences, "55P03", errc::write_conflict, refusal_end::rollback, true},
        {step_kind::read_fences, "42883", errc::unprocessable, refusal_end::rollback, false},
        {step_kind::read_fences, "", errc::stale_fencing_token, refusal_end::rollback, true},
        {step_kind::guard, "55P03", errc::write_conflict, refusal_end::rollback, true},
        {step_kind::guard, "42883", errc::unprocessable, refusal_end::rollback, false},
        {step_kind::guard, "3F000", errc::unprocessable, refusal_end::rollback, false},
        {step_kind::guard, "", errc::stale_fencing_token, refusal_end::commit, false},
        {step_kind::operation, "55P03", errc::write_conflict, refusal_end::rollback, true},
        {step_kind::operation, "23505", errc::constraint_violation, refusal_end::rollback_to_savepoint, true},
        {step_kind::operation, "", errc::expectation_failed, refusal_end::rollback_to_savepoint, true},
        {step_kind::seal, "23505", errc::constraint_violation, refusal_end::rollback_to_savepoint, true},
        {step_kind::constraints, "23503", errc::constraint_violation, refusal_end::rollback_to_savepoint, true},
        {step_kind::keep, "53100", errc::storage_unavailable, refusal_end::rollback, true},
        {step_kind::commit, "23503", errc::constraint_violation, refusal_end::none, true}};
    for (const auto& step : all) {
        for (const bool keyed : {true, false}) {
            auto request = make_request("1", {"a"});
            if (keyed) request.key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
            write_refusal refusal{step.at, std::nullopt, make_failure(step.code, "no"), {}};
            if (*step.sqlstate != 0) refusal.sqlstate = step.sqlstate;
            const auto handling = handle_refusal(request, refusal, {});
            const auto end =
                !keyed && step.end == refusal_end::rollback_to_savepoint ? refusal_end::rollback : step.end;
            EXPECT_EQ(handling.end, end) << step.sqlstate << static_cast<int>(step.at);
            EXPECT_EQ(handling.record.has_value(), step.recorded) << step.sqlstate << static_cast<int>(step.at);
            const std::string sqlstate = step.sqlstate;
            EXPECT_EQ(handling.drop_session, sqlstate == "42883" || sqlstate == "3F000");
            EXPECT_EQ(refusal.why.code, handling.drop_session ? errc::storage_unavailable : step.code);
        }
    }
}

TEST(refusal_handling_test, record_has_initiator_operation_and_reason) {
    auto request = make_request("1", {"a"});
    request.bare_token = true;
    write_refusal refusal{step_kind::operation, "FG403", make_failure(errc::resource_not_covered, "no"), {}};
    refusal.why.facts["resource"] = "b";
    refusal.why.facts["operation"] = 3;
    const auto handling = handle_refusal(request, refusal, {});
    ASSERT_TRUE(handling.record);
    EXPECT_EQ(handling.record->event, "write_rejected");
    EXPECT_EQ(handling.record->write_id, "1");
    EXPECT_EQ(handling.record->initiator.principal, "orders");
    EXPECT_EQ(handling.record->detail,
              R"({"error":"resource-not-covered","sqlstate":"FG403","resource":"b","bare_token":true,"wanted":[)"
              R"({"operation":"update","table":"stock","arguments":[{"part":"set","column":"count","value":"2"},)"
              R"({"part":"where","column":"id","value":"1","operator":"eq"}]}],"operation":3})");
}

}  // namespace
}  // namespace fencegate::pg
