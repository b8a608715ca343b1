#include "pg_fake_session.hpp"

#include <gateway/pg/write/guard_call.hpp>
#include <gateway/pg/write/transaction_plan.hpp>

#include <gtest/gtest.h>

namespace fencegate::pg {
namespace {

using test::make_catalog;
using test::make_request;

std::vector<planned_write> plan_all(const std::vector<write_request>& requests, const catalog& known) {
    std::vector<planned_write> out;
    for (const auto& request : requests)
        out.push_back({&request, build_statements(known, request.operations, {request.return_rows, request.select})});
    return out;
}

const char* name_of(step_kind kind) {
    switch (kind) {
        case step_kind::begin:
            return "begin";
        case step_kind::timeouts:
            return "timeouts";
        case step_kind::claim_keys:
            return "claim";
        case step_kind::savepoint:
            return "savepoint";
        case step_kind::read_fences:
            return "read";
        case step_kind::guards:
            return "guards";
        case step_kind::guard:
            return "guard";
        case step_kind::select_write:
            return "select";
        case step_kind::name_write:
            return "name";
        case step_kind::take_role:
            return "take";
        case step_kind::operation:
            return "operation";
        case step_kind::leave_role:
            return "leave";
        case step_kind::recheck:
            return "recheck";
        case step_kind::seal:
            return "seal";
        case step_kind::constraints:
            return "constraints";
        case step_kind::defer:
            return "defer";
        case step_kind::record:
            return "record";
        case step_kind::keep:
            return "keep";
        case step_kind::commit:
            break;
    }
    return "commit";
}

/// The steps in order; `|` where a round trip ends.
std::string steps_of(const transaction_plan& plan) {
    std::string out;
    for (const auto& step : plan.steps) {
        out += out.empty() ? "" : " ";
        out += name_of(step.kind);
        if (step.ends_round_trip) out += " |";
    }
    return out;
}

transaction_options options_of(const catalog& known, const unjoinable_updates& unjoinable) {
    transaction_options out;
    out.statement_timeout = std::chrono::milliseconds(100);
    out.lock_timeout = std::chrono::milliseconds(50);
    out.known = &known;
    out.unjoinable = &unjoinable;
    return out;
}

class transaction_plan_test : public ::testing::Test {
  protected:
    std::string steps() {
        const auto writes = plan_all(requests, *known);
        return steps_of(plan_transaction(writes, options));
    }

    std::shared_ptr<catalog> known = make_catalog();
    unjoinable_updates unjoinable;
    std::vector<write_request> requests{make_request("1", {"a"}), make_request("2", {"b"})};
    transaction_options options = options_of(*known, unjoinable);
};

TEST_F(transaction_plan_test, several_writes_one_round_trip) {
    EXPECT_EQ(steps(), "begin timeouts guards select operation select operation select |");
}

TEST_F(transaction_plan_test, several_writes_timeouts_from_options) {
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_EQ(*plan.steps[1].parameters, (compat::parameters{"100", "50"}));
    EXPECT_EQ(plan.steps[1].sql->find("synchronous_commit"), std::string::npos);
    options.defer_flush = true;
    EXPECT_NE(plan_transaction(writes, options).steps[1].sql->find("'synchronous_commit', 'off'"), std::string::npos);
}

TEST_F(transaction_plan_test, traces_are_shown_as_application_name) {
    const std::string trace(32, 'a');
    requests[1].initiator.trace_id = trace;
    const auto name = [this] {
        const auto writes = plan_all(requests, *known);
        const auto plan = plan_transaction(writes, options);
        EXPECT_NE(plan.steps[1].sql->find("set_config('application_name', $3, true)"), std::string::npos);
        return plan.steps[1].parameters->at(2).value();
    };
    EXPECT_EQ(name(), "fencegate " + trace);
    requests[0].initiator.trace_id = std::string(32, 'b');
    options.defer_flush = true;
    EXPECT_EQ(name(), "fencegate " + trace + " +1");
}

TEST_F(transaction_plan_test, writes_of_one_lease_enter_once) {
    requests = {make_request("1", {"a"}), make_request("2", {"a"}), make_request("3", {"b"}),
                make_request("4", {"b"}, 8)};
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_EQ(steps_of(plan),
              "begin timeouts guards select operation name operation select operation guard operation select |")
        << "another token enters by itself";
    EXPECT_EQ((*plan.steps[5].parameters)[0], "2") << "the write that changes what another one has opened is named";
    EXPECT_EQ(test::elements((*plan.steps[2].parameters)[7]), (std::vector<std::string>{"1", "1", "3"}))
        << "the resource is open for the first of them, which is selected for both";
    requests[1].seal = true;
    const auto sealing = plan_all(requests, *known);
    EXPECT_EQ(plan_transaction(sealing, options).steps.back().kind, step_kind::seal);
    auto alone = plan_all(requests, *known);
    alone[1].keeps_token = true;
    EXPECT_NE(plan_transaction(alone, options).steps.back().kind, step_kind::seal);
}

TEST_F(transaction_plan_test, writes_of_one_lease_join_no_update) {
    known = make_catalog(true);
    options = options_of(*known, unjoinable);
    requests = {make_request("1", {"a"}), make_request("2", {"a"}), make_request("3", {"b"}),
                make_request("4", {"c"}), make_request("5", {"d"}), make_request("6", {"e"})};
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_FALSE(plan.writes[0].joined_update || plan.writes[1].joined_update) << "a statement changes a row once";
    EXPECT_TRUE(plan.writes[2].joined_update && plan.writes[3].joined_update);
}

database_identity_ptr identity_of(const std::string& role, const std::string& claims) {
    return std::make_shared<const database_identity>(database_identity{role, claims});
}

TEST_F(transaction_plan_test, operations_run_in_the_callers_role) {
    requests[1].identity = identity_of("shop", R"({"sub":"b"})");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_EQ(steps_of(plan),
              "begin timeouts guards select operation constraints select defer take operation constraints |");
    EXPECT_EQ(*plan.steps[8].parameters, (compat::parameters{"shop", R"({"sub":"b"})"}));
    EXPECT_FALSE(plan.steps[4].in_callers_role);
    EXPECT_FALSE(plan.steps[4].runs_user_code);
    EXPECT_FALSE(plan.steps[5].in_callers_role);
    EXPECT_EQ(plan.steps[5].write, 0U);
    EXPECT_TRUE(plan.steps[9].in_callers_role);
    EXPECT_TRUE(plan.steps[9].runs_user_code) << "of policies and triggers";
    EXPECT_TRUE(plan.steps[10].in_callers_role);
    EXPECT_EQ(plan.steps[10].write, 1U);
}

TEST_F(transaction_plan_test, each_caller_has_its_own_role_and_claims) {
    requests[0].identity = identity_of("shop", R"({"sub":"a"})");
    requests[1].identity = identity_of("shop", R"({"sub":"b"})");
    EXPECT_EQ(
        steps(),
        "begin timeouts guards select take operation constraints leave select defer take operation constraints |");
    requests[1].identity = identity_of("shop", R"({"sub":"a"})");
    EXPECT_EQ(steps(), "begin timeouts guards select take operation select operation select constraints |");
    const auto writes = plan_all(requests, *known);
    EXPECT_FALSE(plan_transaction(writes, options).steps.back().write) << "either of the two may be the cause";
    requests[1].identity = nullptr;
    EXPECT_EQ(steps(), "begin timeouts guards select take operation constraints leave select defer operation |");
}

TEST_F(transaction_plan_test, separate_checks_show_whose_constraint_fails) {
    options.separate_checks = true;
    EXPECT_EQ(steps(), "begin timeouts guards select operation constraints select defer operation constraints |");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_EQ(plan.steps[5].write, 0U);
    EXPECT_EQ(plan.steps.back().write, 1U);
    for (auto& request : requests)
        request.identity = identity_of("shop", "{}");
    EXPECT_EQ(steps(),
              "begin timeouts guards select take operation constraints leave select defer take operation constraints |")
        << "only the gateway's own role may defer again";
}

TEST_F(transaction_plan_test, guards_keys_and_seals_run_in_the_gateways_role) {
    options.join_guards = false;
    for (auto& request : requests) {
        request.identity = identity_of("shop", "{}");
        request.seal = true;
    }
    EXPECT_EQ(
        steps(),
        "begin timeouts guard take operation constraints leave guard defer take operation constraints leave seal |");
}

TEST_F(transaction_plan_test, isolated_write_keeps_its_outcome_in_the_gateways_role) {
    requests.resize(1);
    requests[0].identity = identity_of("shop", "{}");
    options.isolated = true;
    EXPECT_EQ(steps(), "begin timeouts guard | take operation constraints |");
    requests[0].key = idempotency_key{};
    EXPECT_EQ(steps(), "begin timeouts claim | savepoint guard | take operation constraints | leave |");
}

TEST_F(transaction_plan_test, role_ended_before_several_are_entered) {
    requests = {make_request("1", {"a"}), make_request("2", {"a"}, 8), make_request("3", {"b"})};
    requests[0].identity = identity_of("shop", "{}");
    EXPECT_EQ(steps(),
              "begin timeouts guard take operation constraints leave guards select defer operation select operation "
              "select |");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    for (std::size_t i = 1; i < 3; ++i)
        EXPECT_EQ(plan.steps[plan.writes[i].guard].kind, step_kind::guards);
}

TEST_F(transaction_plan_test, deferred_of_several_runs_for_none) {
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    ASSERT_EQ(plan.steps.back().kind, step_kind::select_write);
    EXPECT_EQ(*plan.steps.back().parameters, compat::parameters{""});
}

TEST_F(transaction_plan_test, single_write_entered_by_begin_write) {
    requests.resize(1);
    EXPECT_EQ(steps(), "begin timeouts guard operation |");
}

TEST_F(transaction_plan_test, separate_guards_entered_one_by_one) {
    options.join_guards = false;
    EXPECT_EQ(steps(), "begin timeouts guard operation guard operation select |");
}

TEST_F(transaction_plan_test, resource_of_another_lease_entered_by_another_call) {
    requests.push_back(make_request("3", {"b"}, 8));
    requests.push_back(make_request("4", {"c"}));
    EXPECT_EQ(
        steps(),
        "begin timeouts guards select operation select operation guards select operation select operation select |");
}

TEST_F(transaction_plan_test, several_resources_entered_by_begin_write) {
    requests.insert(requests.begin() + 1, make_request("3", {"a", "b"}));
    EXPECT_EQ(steps(), "begin timeouts guard operation guard operation guard operation select |");
}

TEST_F(transaction_plan_test, keys_first_and_seals_last) {
    requests[1].key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    requests[0].seal = true;
    EXPECT_EQ(steps(), "begin timeouts claim guards select operation select operation select seal |");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    EXPECT_FALSE(plan.writes[0].key_row);
    EXPECT_EQ(plan.writes[1].key_row, 0);
    EXPECT_EQ(plan.key_step, 2U);
}

TEST_F(transaction_plan_test, updates_of_one_shape_are_joined) {
    known = make_catalog(true);
    options = options_of(*known, unjoinable);
    requests = {make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}), make_request("4", {"d"})};
    EXPECT_EQ(steps(), "begin timeouts guards select operation recheck select |");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    ASSERT_EQ(plan.joined_updates.size(), 1U);
    const auto& joined = plan.joined_updates[0];
    EXPECT_EQ(plan.steps[joined.select].kind, step_kind::select_write);
    EXPECT_EQ(plan.steps[joined.update].kind, step_kind::operation);
    EXPECT_EQ(plan.steps[joined.recheck].kind, step_kind::recheck);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(plan.writes[i].joined_update, 0U);
        EXPECT_EQ(plan.writes[i].position, i + 1);
    }
    EXPECT_EQ(test::elements(plan.steps[joined.update].parameters->back()),
              (std::vector<std::string>{"a", "b", "c", "d"}));
    options.join_updates = false;
    EXPECT_EQ(steps(),
              "begin timeouts guards select operation select operation select operation select operation select |");
    options.join_updates = true;
    unjoinable.add(plan.joined_updates[0].single_update);
    EXPECT_EQ(steps(),
              "begin timeouts guards select operation select operation select operation select operation select |");
}

TEST_F(transaction_plan_test, isolated_checks_each_answer) {
    requests.resize(1);
    requests[0].operations.push_back(requests[0].operations[0]);
    requests[0].seal = true;
    options.isolated = true;
    EXPECT_EQ(steps(), "begin timeouts guard | operation | operation |");
    requests[0].key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    EXPECT_EQ(steps(), "begin timeouts claim | savepoint guard | operation | operation |");
}

TEST_F(transaction_plan_test, shared_resources_are_read_before_the_guard) {
    requests.resize(1);
    requests[0].shared = make_request("", {"b", "c"}).resources;
    options.isolated = true;
    EXPECT_EQ(steps(), "begin timeouts read guard | operation |");
    const auto writes = plan_all(requests, *known);
    const auto plan = plan_transaction(writes, options);
    const auto& step = plan.steps[*plan.writes[0].read_fences];
    EXPECT_NE(step.sql->find("raise_read_fences"), std::string::npos);
    EXPECT_EQ(step.sql->find("raise_fences"), std::string::npos);
    EXPECT_EQ(step.parameters->at(0), "7");
    EXPECT_EQ(step.parameters->at(6), R"({"b","c"})");
    EXPECT_EQ(step.parameters->at(7), "1");
}

TEST_F(transaction_plan_test, guard_seals_only_a_write_that_is_alone) {
    const auto guard_sql = [this] {
        const auto writes = plan_all(requests, *known);
        const auto plan = plan_transaction(writes, options);
        return *plan.steps[plan.writes[0].guard].sql;
    };
    requests.resize(1);
    EXPECT_EQ(guard_sql(), begin_write_sql);
    requests[0].seal = true;
    EXPECT_EQ(guard_sql(), begin_sealing_write_sql);
    EXPECT_EQ(steps(), "begin timeouts guard operation |");
    requests[0].operations = {call_operation{"count_stock", {}}};
    EXPECT_EQ(guard_sql(), begin_write_sql) << "a function may use the token";
    EXPECT_EQ(steps(), "begin timeouts guard operation seal |");
    requests[0] = make_request("1", {"a", "b"});
    requests[0].seal = true;
    EXPECT_EQ(guard_sql(), begin_write_sql);
    EXPECT_EQ(steps(), "begin timeouts guard operation seal |");
}

TEST_F(transaction_plan_test, function_step_is_user_code) {
    requests.resize(1);
    requests[0].operations = {call_operation{"count_stock", {}}};
    options.isolated = true;
    const auto writes = plan_all(requests, *known);
    ASSERT_TRUE(writes[0].statements.faults.empty());
    EXPECT_TRUE(plan_transaction(writes, options).steps.back().runs_user_code);
}

TEST_F(transaction_plan_test, isolated_constraints_checked_before_keep) {
    requests[0].key = idempotency_key{"k", "f", std::chrono::milliseconds(5)};
    EXPECT_EQ(steps_of(plan_kept_outcomes({{&requests[0], "{}"}}, false)), "keep |");
    EXPECT_EQ(steps_of(plan_kept_outcomes({{&requests[0], "{}"}}, true)), "constraints keep |");
    EXPECT_TRUE(plan_kept_outcomes({}, true).steps.empty());
    EXPECT_EQ(steps_of(plan_failure_records("[]", {}, options)), "timeouts record |");
    options.isolated = true;
    EXPECT_EQ(steps_of(plan_failure_records("[]", {}, options)), "record |");
    EXPECT_EQ(steps_of(plan_failure_records("[]", {{&requests[0], "{}"}}, options)), "record keep |");
}

}  // namespace
}  // namespace fencegate::pg
