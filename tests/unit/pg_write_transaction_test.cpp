#include "pg_write_truth.hpp"

#include <gateway/pg/write/write_transaction.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {
namespace {

using test::expect_truth;
using test::fail_each_message;
using test::fake_session;
using test::fault;
using test::make_catalog;
using test::make_key;
using test::make_request;
using test::make_rows;
using test::soon;

/// Three writes: one of several resources, one sealed and one with a key.
std::vector<write_request> make_batch() {
    std::vector<write_request> out{make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c", "d"})};
    out[1].seal = true;
    out[2].key = make_key("k");
    return out;
}

std::vector<batch_write> run(fake_session& session, const std::vector<write_request>& requests, bool defer = false,
                             bool joins_updates = false, memory_budget& answers = test::large_budget()) {
    static unjoinable_updates unjoinable;
    batch_options options;
    options.known = make_catalog(joins_updates);
    options.unjoinable = &unjoinable;
    options.defer_flush = defer;
    std::vector<batch_write> writes;
    for (const auto& request : requests)
        writes.emplace_back().write = {
            &request, build_statements(*options.known, request.operations, {request.return_rows, request.select})};
    run_shared_transaction(session, answers, writes, soon(session), options);
    return writes;
}

TEST(shared_transaction, success_takes_two_round_trips) {
    fake_session session;
    const auto requests = make_batch();
    run(session, requests);
    session.log.clear();
    session.committed.clear();
    session.kept.clear();
    session.sealed.clear();
    const auto writes = run(session, requests);
    for (const auto& write : writes) {
        ASSERT_EQ(write.status, batch_result::decided);
        ASSERT_TRUE(*write.outcome);
    }
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "2", "3"}));
    EXPECT_EQ(session.kept.size(), 1U);
    EXPECT_EQ(session.sealed, std::vector<std::string>{"2"});
    std::size_t trips = 0;
    for (const auto& line : session.log)
        trips += line.starts_with("run") ? 1 : 0;
    EXPECT_EQ(trips, 2U) << "the outcome depends on the answers, so it has a trip of its own";
    EXPECT_EQ(session.log.back(), "commit");
}

TEST(shared_transaction, statements_prepared_under_own_limits) {
    fake_session session;
    auto requests = make_batch();
    std::get<update_operation>(requests[1].operations[0]).set[0].name = "id";
    session.fault_sqlstate = "55P03";
    session.unprepared_text = "set \"id\"";
    const auto writes = run(session, requests);
    ASSERT_FALSE(session.log.empty());
    EXPECT_EQ(session.log.front(), "run begin select");
    EXPECT_EQ(writes[1].status, batch_result::waited);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "3"}));
}

/// Loses the session while the tokens are sealed, so that the next statement runs on another.
void lose_transaction(fake_session& session) {
    session.answers["fencing.seal_writes"] = [&session](const compat::parameters&) {
        session.drop();
        return make_rows({{""}});
    };
}

TEST(shared_transaction, lost_transaction_keeps_no_outcome) {
    fake_session session;
    lose_transaction(session);
    const auto requests = make_batch();
    for (const auto& write : run(session, requests)) {
        ASSERT_EQ(write.status, batch_result::decided);
        EXPECT_FALSE(*write.outcome);
    }
    EXPECT_TRUE(session.kept.empty() && session.committed.empty());
}

TEST(shared_transaction, outdated_statement_sent_again_on_new_session) {
    const auto requests = make_batch();
    fake_session whole;
    run(whole, requests);
    std::size_t repeated = 0;
    for (std::size_t at = 0; at < whole.messages; ++at) {
        fake_session session;
        session.fault_at = at;
        session.kind = fault::refused;
        session.fault_sqlstate = "XX000";
        const auto writes = run(session, requests);
        if (!session.logged("connect")) continue;
        ++repeated;
        for (const auto& write : writes)
            EXPECT_TRUE(write.status == batch_result::decided && *write.outcome) << "message " << at;
        EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "2", "3"}));
    }
    EXPECT_GE(repeated, 3U);
}

TEST(shared_transaction, flush_deferred_committed_and_not_answered) {
    fake_session session;
    const std::vector requests{make_request("1", {"a"})};
    EXPECT_EQ(run(session, requests, true).front().status, batch_result::committed);
}

TEST(shared_transaction, each_message_fails_answers_stay_true) {
    fail_each_message([](fake_session& session) {
        const auto requests = make_batch();
        const auto writes = run(session, requests);
        for (std::size_t i = 0; i < writes.size(); ++i) {
            if (writes[i].status == batch_result::decided) {
                expect_truth(session, requests[i].write_id, *writes[i].outcome);
            } else {
                EXPECT_EQ(session.committed.count(requests[i].write_id), 0U) << "it is to be run again";
                EXPECT_FALSE(session.open);
            }
        }
    });
}

TEST(shared_transaction, one_refused_the_others_committed) {
    fake_session session;
    auto requests = make_batch();
    auto bad = make_request("bad", {"bb"});
    std::get<update_operation>(bad.operations[0]).set[0].name = "id";
    requests.insert(requests.begin() + 2, bad);
    session.fault_sqlstate = "23505";
    session.refused_text = "set \"id\"";
    const auto writes = run(session, requests);
    EXPECT_EQ(writes[2].status, batch_result::retry_isolated);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "2", "3"}));
}

TEST(shared_transaction, waiting_write_leaves_others_wait_less) {
    fake_session session;
    auto requests = make_batch();
    std::get<update_operation>(requests[0].operations[0]).set[0].name = "id";
    session.fault_sqlstate = "55P03";
    session.refused_text = "set \"id\"";
    std::vector<std::string> limits;
    session.answers["statement_timeout"] = [&limits](const compat::parameters& values) {
        limits.push_back(*values[0]);
        return make_rows({{""}});
    };
    const auto writes = run(session, requests);
    EXPECT_EQ(writes[0].status, batch_result::waited);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"2", "3"}));
    EXPECT_EQ(limits, (std::vector<std::string>{"100", "25"}));
}

TEST(shared_transaction, unpreparable_write_leaves_alone) {
    fake_session session;
    auto requests = make_batch();
    std::get<update_operation>(requests[1].operations[0]).set[0].name = "id";
    session.fault_sqlstate = "42703";
    session.unprepared_text = "set \"id\"";
    const auto writes = run(session, requests);
    EXPECT_EQ(writes[1].status, batch_result::retry_isolated);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "3"}));
}

TEST(shared_transaction, known_key_leaves_and_keeps_nothing) {
    fake_session session;
    session.keys["k"] = {"running", ""};
    const auto requests = make_batch();
    const auto writes = run(session, requests);
    EXPECT_EQ(writes[2].status, batch_result::retry_isolated);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "2"}));
    EXPECT_TRUE(session.kept.empty());
}

TEST(shared_transaction, stale_token_leaves) {
    fake_session session;
    session.fences["a"] = 9;
    const auto requests = make_batch();
    EXPECT_EQ(run(session, requests)[0].status, batch_result::retry_isolated);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"2", "3"}));
}

TEST(shared_transaction, joined_guards_refused_entered_one_by_one) {
    fake_session session;
    session.refused_text = "begin_writes(";
    const auto requests = make_batch();
    run(session, requests);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "2", "3"}));
}

TEST(shared_transaction, refused_joined_update_runs_one_by_one) {
    const std::vector requests{make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}),
                               make_request("4", {"d"})};
    const std::multiset<std::string> all{"1", "2", "3", "4"};
    fake_session joined;
    run(joined, requests, false, true);
    EXPECT_EQ(joined.committed, all);
    EXPECT_TRUE(joined.logged("shared_resource_expression"));
    for (const auto* text : {"with ordinality", "shared_resource_expression"}) {
        fake_session session;
        session.refused_text = text;
        session.fault_sqlstate = "22012";
        run(session, requests, false, true);
        EXPECT_EQ(session.committed, all) << text;
    }
}

TEST(shared_transaction, unpreparable_joined_update_runs_one_by_one) {
    const std::vector requests{make_request("1", {"a"}), make_request("2", {"b"}), make_request("3", {"c"}),
                               make_request("4", {"d"})};
    fake_session session;
    session.unprepared_text = "with ordinality";
    session.fault_sqlstate = "42883";
    run(session, requests, false, true);
    EXPECT_EQ(session.committed.size(), 4U);
}

TEST(shared_transaction, rows_over_budget_leave_others_committed) {
    fake_session session;
    auto requests = make_batch();
    requests[0].return_rows = true;
    session.answers["fencegate_changed"] = [](const compat::parameters&) {
        const std::string text(uncounted_bytes_max + 1, ' ');
        return make_rows({{std::to_string(text.size()), text, "1"}});
    };
    memory_budget answers(uncounted_bytes_max);
    const auto writes = run(session, requests, false, false, answers);
    EXPECT_EQ(writes[0].status, batch_result::retry_isolated);
    EXPECT_EQ(writes[1].status, batch_result::decided);
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"2", "3"}));
    EXPECT_EQ(answers.used(), 0U);
}

TEST(shared_transaction, unreadable_answer_throws_before_commit) {
    fake_session session;
    session.answers["begin_writes("] = [](const compat::parameters&) { return make_rows({{"a"}}); };
    const auto requests = make_batch();
    EXPECT_THROW(run(session, requests), std::exception);
    EXPECT_TRUE(session.committed.empty());
}

TEST(shared_transaction, cut_connection_not_tried_again) {
    fake_session session;
    session.fault_at = 8;
    session.cut = true;
    const auto requests = make_batch();
    for (const auto& write : run(session, requests)) {
        ASSERT_EQ(write.status, batch_result::decided);
        EXPECT_FALSE(*write.outcome);
    }
    EXPECT_FALSE(session.logged("connect"));
}

// Writes that changed no row

/// Writes of which each expects one row. Those that set the count 9 change none.
std::vector<write_request> make_sales(const std::vector<std::pair<std::string, bool>>& sales) {
    std::vector<write_request> out;
    for (const auto& [resource, sold_out] : sales) {
        out.push_back(make_request(std::to_string(out.size() + 1), {resource}));
        auto& update = std::get<update_operation>(out.back().operations[0]);
        update.expect_rows = 1;
        if (sold_out) update.set[0].value = 9;
    }
    return out;
}

void sell_out(fake_session& session) {
    session.answers["update shop.stock"] = [](const compat::parameters& values) {
        return test::make_affected(std::ranges::find(values, "9") != values.end() ? 0 : 1);
    };
}

std::vector<batch_result> statuses_of(const std::vector<batch_write>& writes) {
    std::vector<batch_result> out;
    for (const auto& write : writes)
        out.push_back(write.status);
    return out;
}

constexpr auto decided = batch_result::decided;
constexpr auto retried = batch_result::retry_isolated;

TEST(shared_transaction, unchanged_writes_refused_together) {
    fake_session session;
    sell_out(session);
    auto requests = make_sales({{"a", true}, {"a", true}, {"b", true}});
    requests[2].key = make_key("k");
    const auto writes = run(session, requests, false, true);
    ASSERT_EQ(statuses_of(writes), (std::vector{decided, decided, decided}));
    for (const auto& write : writes) {
        EXPECT_EQ(write.outcome->error().code, errc::expectation_failed);
        EXPECT_TRUE(write.outcome->error().in_history);
        EXPECT_EQ(write.outcome->error().facts.at("operation").as_uint64(), 0U);
    }
    EXPECT_TRUE(session.committed.empty());
    EXPECT_EQ(session.recorded.size(), 1U) << "one statement has all rows";
    EXPECT_EQ(session.kept.size(), 1U);
    EXPECT_EQ(std::ranges::count(session.log, "rollback"), 1);
}

TEST(shared_transaction, unchanged_write_leaves_the_others) {
    fake_session session;
    sell_out(session);
    const auto requests = make_sales({{"a", false}, {"b", true}, {"c", false}});
    const auto writes = run(session, requests, true, true);
    ASSERT_EQ(statuses_of(writes), (std::vector{batch_result::committed, decided, batch_result::committed}));
    EXPECT_TRUE(writes[1].outcome->error().durability_unproven) << "its caller waits for the disk";
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"1", "3"}));
}

TEST(shared_transaction, unchanged_writes_behind_a_change_refused_in_place) {
    fake_session session;
    sell_out(session);
    auto requests = make_sales({{"a", true}, {"a", false}, {"a", true}, {"a", false}, {"a", true}, {"b", false}});
    for (auto& request : requests)
        request.seal = true;
    requests[2].key = make_key("refused");
    requests[3].key = make_key("sold");
    const auto writes = run(session, requests, true, true);
    constexpr auto committed = batch_result::committed;
    EXPECT_EQ(statuses_of(writes), (std::vector{decided, committed, decided, committed, decided, committed}));
    EXPECT_EQ(session.committed, (std::multiset<std::string>{"2", "4", "6"})) << "none is entered that is refused";
    EXPECT_EQ(std::ranges::count(session.log, "rollback"), 1);
    EXPECT_EQ(session.kept.size(), 2U);
    EXPECT_EQ(session.sealed, (std::vector<std::string>{"2", "4", "6"}));
    for (const auto i : {0U, 2U, 4U}) {
        EXPECT_EQ(writes[i].outcome->error().code, errc::expectation_failed);
        EXPECT_TRUE(writes[i].outcome->error().in_history);
        EXPECT_TRUE(writes[i].outcome->error().durability_unproven) << "its caller waits for the disk";
    }
}

TEST(shared_transaction, presumed_refused_write_that_changes_a_row_leaves) {
    fake_session session;
    int updates = 0;  // the second finds no stock in the first run alone
    session.answers["update shop.stock"] = [&updates](const compat::parameters&) {
        return test::make_affected(++updates == 2 ? 0 : 1);
    };
    const auto writes = run(session, make_sales({{"a", false}, {"a", false}}), false, true);
    EXPECT_EQ(statuses_of(writes), (std::vector{decided, retried}));
    EXPECT_EQ(session.committed, std::multiset<std::string>{"1"});
}

TEST(shared_transaction, presumed_refused_write_enters_when_it_is_the_first) {
    fake_session session;
    int updates = 0;  // only the first update of the first run finds stock
    session.answers["update shop.stock"] = [&updates](const compat::parameters&) {
        return test::make_affected(++updates == 1 ? 1 : 0);
    };
    const auto writes = run(session, make_sales({{"a", false}, {"a", false}}), false, true);
    EXPECT_EQ(statuses_of(writes), (std::vector{decided, decided}));
    EXPECT_TRUE(session.committed.empty());
}

TEST(shared_transaction, unchanged_write_of_unknown_effect_runs_again) {
    fake_session leases;
    sell_out(leases);
    auto two_leases = make_sales({{"a", false}, {"a", true}});
    two_leases[1].token = lockcore::fencing_token{8};
    EXPECT_EQ(statuses_of(run(leases, two_leases, false, true)), (std::vector{decided, retried}))
        << "the change before it is of another lease";
    fake_session triggers;
    sell_out(triggers);
    EXPECT_EQ(statuses_of(run(triggers, make_sales({{"a", true}}))), std::vector{retried}) << "triggers may have run";
    fake_session two;
    sell_out(two);
    auto half = make_sales({{"a", true}});
    half[0].operations.push_back(make_sales({{"a", false}})[0].operations[0]);
    EXPECT_EQ(statuses_of(run(two, half, false, true)), std::vector{retried}) << "its second operation made a change";
}

TEST(shared_transaction, unrecorded_refusals_are_final) {
    fake_session session;
    sell_out(session);
    session.refused_text = "record_events";
    const auto writes = run(session, make_sales({{"a", true}, {"b", true}}), false, true);
    ASSERT_EQ(statuses_of(writes), (std::vector{decided, decided})) << "another may have sealed the token";
    EXPECT_FALSE(writes[0].outcome->error().in_history);
    EXPECT_TRUE(writes[0].outcome->error().durability_unproven);
}

TEST(shared_transaction, unreadable_record_leaves_the_others_committed) {
    fake_session session;
    sell_out(session);
    session.answers["record_events"] = [](const compat::parameters&) -> answer_rows {
        throw std::length_error("injected");
    };
    EXPECT_EQ(statuses_of(run(session, make_sales({{"a", false}, {"b", true}}), true, true)),
              (std::vector{batch_result::committed, decided}))
        << "run again, the first would be made twice";
    EXPECT_EQ(session.committed, std::multiset<std::string>{"1"});
}

TEST(shared_transaction, each_message_of_refusals_fails_answers_stay_true) {
    const auto requests = make_sales({{"a", true}, {"b", false}, {"b", true}, {"c", true}});
    fail_each_message([&](fake_session& session) {
        sell_out(session);
        const auto writes = run(session, requests, false, true);
        for (std::size_t i = 0; i < writes.size(); ++i) {
            if (writes[i].status == decided) expect_truth(session, requests[i].write_id, *writes[i].outcome);
        }
        EXPECT_FALSE(session.open);
    });
}

}  // namespace
}  // namespace fencegate::pg
