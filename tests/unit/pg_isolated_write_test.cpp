#include "pg_write_truth.hpp"

#include <gateway/pg/write/group_commit.hpp>
#include <gateway/pg/write/isolated_write.hpp>
#include <gateway/pg/write/kept_outcome.hpp>

#include <gtest/gtest.h>

#include <optional>

namespace fencegate::pg {
namespace {

using test::expect_truth;
using test::fail_each_message;
using test::fake_session;
using test::fault;
using test::make_catalog;
using test::make_key;
using test::make_request;
using test::soon;

result<write_outcome> run_one(fake_session& session, const write_request& request,
                              std::optional<deadline> until = std::nullopt,
                              memory_budget& answers = test::large_budget()) {
    if (session.known->tables.empty()) session.known = make_catalog();
    return run_isolated(session, session, answers, request, until.value_or(soon(session)));
}

write_request make_isolated() {
    auto out = make_request("1", {"a"});
    out.operations.push_back(out.operations[0]);
    out.key = make_key("k");
    out.seal = true;
    return out;
}

TEST(run_isolated, success_outcome_kept_before_commit) {
    fake_session session;
    const auto outcome = run_one(session, make_isolated());
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->results.size(), 2U);
    EXPECT_TRUE(outcome->sealed);
    EXPECT_EQ(session.kept.size(), 1U);
    EXPECT_TRUE(session.recorded.empty());
    expect_truth(session, "1", outcome);
}

/// As the executor does it.
result<write_outcome> attempt_one(fake_session& session, const write_request& request) {
    try {
        return run_one(session, request);
    } catch (const session_lost& lost) {
        session.drop();
        return make_failure(errc::storage_unavailable, lost.cause);
    } catch (const statement_failed& e) {
        return make_failure(errc::storage_unavailable, e.what());
    }
}

void run_and_expect_truth(fake_session& session, const write_request& request) {
    const auto answer = attempt_one(session, request);
    expect_truth(session, request.write_id, answer);
    EXPECT_FALSE(session.open);
    if (!request.key) {
        EXPECT_TRUE(session.kept.empty());
    } else if (answer) {
        EXPECT_EQ(session.kept.size(), 1U);
    } else if (!answer.error().outcome_unknown && !answer.error().durability_unproven) {
        EXPECT_LE(session.kept.size(), is_kept(answer.error()) ? session.recorded.size() : 0U) << answer.error().detail;
    }
}

TEST(run_isolated, each_message_lost_answer_stays_true) {
    for (const bool keyed : {true, false}) {
        auto request = make_isolated();
        if (!keyed) request.key.reset();
        fail_each_message([&](fake_session& session) { run_and_expect_truth(session, request); },
                          {fault::lost_before, fault::lost_after});
    }
}

TEST(run_isolated, each_message_refused_answer_stays_true) {
    for (const bool keyed : {true, false}) {
        for (const auto* sqlstate : {"55P03", "23505", "57014", "42703", "25006"}) {
            auto request = make_isolated();
            if (!keyed) request.key.reset();
            fail_each_message(
                [&](fake_session& session) {
                    session.fault_sqlstate = sqlstate;
                    run_and_expect_truth(session, request);
                },
                {fault::refused});
        }
    }
}

TEST(run_isolated, lost_transaction_keeps_no_outcome) {
    fake_session session;
    session.answers["fencing.seal_writes"] = [&session](const compat::parameters&) {
        session.drop();
        return test::make_rows({{""}});
    };
    auto request = make_isolated();
    request.resources.push_back(make_request("1", {"b"}).resources.front());
    EXPECT_THROW(run_one(session, request), session_lost);
    EXPECT_TRUE(session.kept.empty() && session.committed.empty());
}

TEST(run_isolated, refused_operation_recorded_and_kept_together) {
    fake_session session;
    session.refused_text = "update shop";
    session.fault_sqlstate = "23505";
    const auto outcome = run_one(session, make_isolated());
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, errc::constraint_violation);
    EXPECT_FALSE(outcome.error().durability_unproven);
    EXPECT_EQ(session.recorded.size(), 1U);
    EXPECT_EQ(session.kept.size(), 1U);
    EXPECT_TRUE(session.logged("rollback to savepoint claimed"));
    EXPECT_TRUE(session.committed.empty());
}

TEST(run_isolated, unrecorded_refusal_marked_unproven) {
    for (const bool keyed : {true, false}) {
        fake_session session;
        session.fault_sqlstate = "23505";
        auto request = make_isolated();
        if (!keyed) request.key.reset();
        std::get<update_operation>(request.operations[0]).expect_rows = 2;
        session.refused_text = "record_events";
        const auto outcome = run_one(session, request);
        ASSERT_FALSE(outcome);
        EXPECT_EQ(outcome.error().code, errc::expectation_failed);
        EXPECT_TRUE(outcome.error().durability_unproven);
        EXPECT_FALSE(session.open);
        EXPECT_TRUE(session.kept.empty());
    }
}

TEST(run_isolated, failed_expectation_later_steps_not_sent) {
    fake_session session;
    auto request = make_request("1", {"a"});
    std::get<update_operation>(request.operations[0]).expect_rows = 2;
    request.operations.emplace_back(call_operation{"count_stock", {}});
    const auto outcome = run_one(session, request);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, errc::expectation_failed);
    EXPECT_EQ(outcome.error().detail,
              "The operation affects another number of rows (1) than expected (2); nothing was changed.");
    EXPECT_FALSE(session.logged("user code"));
}

/// The catalog changes before it is read again.
void change_catalog(fake_session& session) {
    session.known = make_catalog();
    auto changed = make_catalog();
    changed->source = "changed";
    session.newer = changed;
}

/// A write that gives its rows back, of more bytes than are not counted.
write_request make_large(fake_session& session) {
    auto out = make_isolated();
    out.operations.resize(1);
    out.return_rows = true;
    session.answers["fencegate_changed"] = [](const compat::parameters&) {
        const std::string text(uncounted_bytes_max + 1, ' ');
        return test::make_rows({{std::to_string(text.size()), text, "1"}});
    };
    return out;
}

TEST(run_isolated, rows_reserved_for_the_principal) {
    fake_session session;
    const auto request = make_large(session);
    memory_budget answers(1 << 20);
    {
        const auto outcome = run_one(session, request, std::nullopt, answers);
        ASSERT_TRUE(outcome);
        EXPECT_EQ(outcome->results.at(0).rows_affected, 1);
        EXPECT_EQ(outcome->results.at(0).json.size(), uncounted_bytes_max + 1);
        EXPECT_EQ(answers.used(), uncounted_bytes_max + 1);
    }
    EXPECT_EQ(answers.used(), 0U);
}

TEST(run_isolated, rows_over_budget_rolled_back_and_recorded) {
    fake_session session;
    const auto request = make_large(session);
    memory_budget answers(uncounted_bytes_max);
    const auto outcome = run_one(session, request, std::nullopt, answers);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, errc::overloaded);
    EXPECT_TRUE(session.committed.empty() && session.kept.empty());
    EXPECT_EQ(session.recorded.size(), 1U);
    EXPECT_EQ(answers.used(), 0U);
}

TEST(run_isolated, stale_token_function_not_called) {
    fake_session session;
    session.fences["a"] = 9;
    auto request = make_request("1", {"a"});
    request.operations = {call_operation{"count_stock", {}}};
    const auto outcome = run_one(session, request);
    EXPECT_EQ(outcome.error().code, errc::stale_fencing_token);
    EXPECT_FALSE(session.logged("user code"));
    EXPECT_EQ(session.recorded.size(), 1U) << "the guard's own row";
}

TEST(run_isolated, known_key_function_not_called) {
    fake_session session;
    session.keys["k"] = {"other", ""};
    auto request = make_request("1", {"a"});
    request.operations = {call_operation{"count_stock", {}}};
    request.key = make_key("k");
    EXPECT_EQ(run_one(session, request).error().code, errc::idempotency_mismatch);
    EXPECT_FALSE(session.logged("user code") || session.logged("begin_write"));
}

TEST(run_isolated, lost_answer_function_not_called_again) {
    auto request = make_request("1", {"a"});
    request.operations = {call_operation{"count_stock", {}}};
    fake_session whole;
    ASSERT_TRUE(run_one(whole, request));
    fake_session session;
    session.known = make_catalog();
    session.fault_at = whole.messages - 2;  // the round trip of the call; COMMIT follows
    session.kind = fault::lost_after;
    EXPECT_THROW(run_one(session, request), session_lost);
    EXPECT_EQ(std::ranges::count(session.log, "user code"), 1);
    EXPECT_TRUE(session.committed.empty());
}

TEST(run_isolated, outdated_statement_sent_again_on_new_session) {
    for (const bool keyed : {true, false}) {
        auto request = make_isolated();
        if (!keyed) request.key.reset();
        fake_session whole;
        ASSERT_TRUE(run_one(whole, request));
        std::size_t repeated = 0;
        for (std::size_t at = 0; at < whole.messages; ++at) {
            fake_session session;
            session.fault_at = at;
            session.kind = fault::refused;
            session.fault_sqlstate = "XX000";
            const auto outcome = attempt_one(session, request);
            expect_truth(session, "1", outcome);
            if (!session.logged("connect")) continue;
            ++repeated;
            EXPECT_TRUE(outcome) << "message " << at;
            EXPECT_EQ(session.kept.size(), keyed ? 1U : 0U);
        }
        EXPECT_GE(repeated, 6U) << "the preparations and round trips of the guard and of both operations";
    }
}

TEST(run_isolated, outdated_statement_sent_again_once) {
    fake_session session;
    session.refused_text = "update shop";
    session.fault_sqlstate = "XX000";
    session.reused = true;
    EXPECT_EQ(run_one(session, make_request("1", {"a"})).error().code, errc::internal_error);
    EXPECT_EQ(std::ranges::count(session.log, "connect"), 1);
}

TEST(run_isolated, outdated_plan_of_function_not_called_again) {
    for (const bool reused : {true, false}) {
        auto request = make_request("1", {"a"});
        request.operations = {call_operation{"count_stock", {}}};
        fake_session session;
        session.refused_text = "count_stock";
        session.fault_sqlstate = "XX000";
        session.fault_in_code = true;
        session.reused = reused;
        const auto outcome = run_one(session, request);
        ASSERT_FALSE(outcome);
        EXPECT_EQ(outcome.error().code, reused ? errc::storage_unavailable : errc::internal_error);
        EXPECT_EQ(outcome.error().retry_after.has_value(), reused);
        EXPECT_EQ(std::ranges::count(session.log, "user code"), 1);
    }
}

TEST(run_isolated, function_of_new_session_failed_while_the_catalog_changed) {
    auto request = make_request("1", {"a"});
    request.operations = {call_operation{"count_stock", {}}};
    fake_session session;
    change_catalog(session);
    session.refused_text = "count_stock";
    session.fault_sqlstate = "XX000";
    session.fault_in_code = true;
    const auto outcome = run_one(session, request);
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code, errc::storage_unavailable) << "a type was replaced between two look-ups";
    EXPECT_EQ(std::ranges::count(session.log, "user code"), 1);
}

TEST(run_isolated, function_not_called_again_for_later_statement) {
    for (const auto* sqlstate : {"XX000", "42703"}) {
        auto request = make_request("1", {"a"});
        request.operations.insert(request.operations.begin(), call_operation{"count_stock", {}});
        fake_session session;
        change_catalog(session);
        session.refused_text = "update shop";
        session.fault_sqlstate = sqlstate;
        session.reused = true;
        EXPECT_EQ(run_one(session, request).error().code, errc::storage_unavailable) << sqlstate;
        EXPECT_EQ(std::ranges::count(session.log, "user code"), 1);
        EXPECT_TRUE(session.committed.empty());
    }
}

TEST(run_isolated, deadline_passed_operation_not_sent) {
    fake_session session;
    const auto outcome = run_one(session, make_request("1", {"a"}), std::chrono::steady_clock::now());
    EXPECT_EQ(outcome.error().code, errc::storage_unavailable);
    EXPECT_FALSE(session.logged("update"));
    EXPECT_EQ(session.recorded.size(), 1U);
}

TEST(run_isolated, guard_error_session_dropped) {
    fake_session session;
    session.refused_text = "begin_write(";
    session.fault_sqlstate = "42883";
    EXPECT_EQ(run_one(session, make_request("1", {"a"})).error().code, errc::storage_unavailable);
    EXPECT_FALSE(session.connected);
    EXPECT_TRUE(session.recorded.empty());
}

TEST(run_isolated, changed_catalog_planned_again_once) {
    fake_session session;
    change_catalog(session);
    session.refused_text = "update shop";
    session.fault_sqlstate = "42703";
    EXPECT_EQ(run_one(session, make_request("1", {"a"})).error().code, errc::unprocessable);
    EXPECT_EQ(std::ranges::count(session.log, "refresh"), 2) << "it may have changed once more";
    EXPECT_EQ(session.recorded.size(), 1U) << "of the second time alone";
}

TEST(run_isolated, value_of_former_type_planned_again) {
    fake_session session;
    change_catalog(session);
    session.just_read = true;
    session.refused_text = "update shop";
    session.fault_sqlstate = "22P02";
    EXPECT_EQ(run_one(session, make_isolated()).error().code, errc::unprocessable);
    EXPECT_EQ(std::ranges::count_if(session.log, [](const auto& line) { return line.starts_with("run begin"); }), 2);
    EXPECT_EQ(session.kept.size(), 1U) << "of the second time alone, after which the catalog was the same";
}

TEST(run_isolated, refusal_not_kept_if_catalog_unread) {
    fake_session session;
    session.known = make_catalog();
    session.unreadable = true;
    session.refused_text = "update shop";
    session.fault_sqlstate = "22P02";
    EXPECT_EQ(run_one(session, make_isolated()).error().code, errc::unprocessable);
    EXPECT_EQ(session.recorded.size(), 1U);
    EXPECT_TRUE(session.kept.empty());
}

TEST(run_isolated, unknown_name_refused_unless_outcome_kept) {
    auto request = make_request("1", {"a"});
    std::get<update_operation>(request.operations[0]).table = "nothing";
    request.key = make_key("k");
    fake_session session;
    EXPECT_EQ(run_one(session, request).error().code, errc::unprocessable);
    EXPECT_FALSE(session.logged("begin"));
    write_outcome earlier;
    earlier.write_id = "0";
    session.keys["k"] = {"kept", write_kept(request, earlier)};
    const auto outcome = run_one(session, request);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->write_id, "0");
    EXPECT_TRUE(outcome->replayed);
}

// COMMIT

TEST(commit_write, lost_answer_looked_up_on_new_session) {
    for (const auto kind : {fault::lost_before, fault::lost_after}) {
        const auto request = make_request("1", {"a"});
        fake_session whole;
        ASSERT_TRUE(run_one(whole, request));
        fake_session session;
        session.fault_at = whole.messages - 1;
        session.kind = kind;
        const auto outcome = run_one(session, request);
        expect_truth(session, "1", outcome);
        EXPECT_EQ(outcome.has_value(), kind == fault::lost_after);
        EXPECT_TRUE(session.logged("write_landed"));
        EXPECT_EQ(session.logged("pg_logical_emit_message"), kind == fault::lost_after) << "visible is not on disk";
    }
}

TEST(commit_write, unreachable_server_outcome_unknown) {
    const auto request = make_request("1", {"a"});
    fake_session whole;
    ASSERT_TRUE(run_one(whole, request));
    fake_session session;
    session.fault_at = whole.messages - 1;
    session.stays_unreachable = true;
    const auto outcome = run_one(session, request);
    ASSERT_FALSE(outcome);
    EXPECT_TRUE(outcome.error().outcome_unknown);
}

TEST(commit_write, no_open_transaction_commit_not_sent) {
    fake_session session;
    EXPECT_EQ(commit_write(session, "1", "a", soon(session)), commit_status::not_committed);
    EXPECT_FALSE(session.logged("commit"));
}

TEST(commit_write, cut_connection_commit_not_sent) {
    fake_session session;
    session.open = true;
    session.cut = true;
    EXPECT_EQ(commit_write(session, "1", "a", soon(session)), commit_status::not_committed);
    EXPECT_FALSE(session.logged("commit"));
}

}  // namespace
}  // namespace fencegate::pg
