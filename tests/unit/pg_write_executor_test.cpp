#include "pg_fake_session.hpp"

#include <gateway/pg/write/isolated_write.hpp>
#include <gateway/pg/write/write_executor.hpp>

#include <gtest/gtest.h>

#include <boost/asio/system_executor.hpp>

#include <string>
#include <utility>
#include <vector>

namespace fencegate::pg {
namespace {

using test::fake_session;
using test::fault;
using test::make_catalog;
using test::make_request;

/// Keeps the answer.
template <class T>
class test_caller final : public caller_awaiting<T> {
  public:
    void answer(result<T> value) noexcept override {
        ++answers;
        if (!got) got = std::move(value);
    }
    void give_up(bool) noexcept override {}
    boost::asio::any_io_executor executor() const override { return boost::asio::system_executor(); }

    std::optional<result<T>> got;
    int answers = 0;
};

deadline soon() {
    return std::chrono::steady_clock::now() + std::chrono::seconds(10);
}

pending_write make_pending(const std::string& id, const std::vector<std::string>& resources,
                           std::size_t operations = 1) {
    pending_write out{make_request(id, resources), soon(), std::make_shared<test_caller<committed_write>>()};
    out.request.operations.resize(operations, out.request.operations.front());
    return out;
}

std::string ids(const std::vector<pending_write>& batch) {
    std::string out;
    for (const auto& write : batch)
        out += write.request.write_id;
    return out;
}

// The order of writes

TEST(take_next_batch, single_resource_writes_all_taken) {
    std::vector waiting{make_pending("1", {"a"}), make_pending("2", {"a"}), make_pending("3", {"b"})};
    EXPECT_EQ(ids(take_next_batch(waiting)), "123");
    EXPECT_TRUE(waiting.empty());
}

TEST(take_next_batch, lower_resource_waits) {
    std::vector waiting{make_pending("1", {"a", "m"}), make_pending("2", {"b"}), make_pending("3", {"b", "z"}),
                        make_pending("4", {"m"}), make_pending("5", {"n"})};
    EXPECT_EQ(ids(take_next_batch(waiting)), "145");
    EXPECT_EQ(ids(take_next_batch(waiting)), "23");
    EXPECT_TRUE(waiting.empty());
}

TEST(take_next_batch, one_resource_keeps_order_of_arrival) {
    std::vector waiting{make_pending("1", {"a", "c"}), make_pending("2", {"b"}), make_pending("3", {"b"}),
                        make_pending("4", {"b"})};
    EXPECT_EQ(ids(take_next_batch(waiting)), "1");
    EXPECT_EQ(ids(take_next_batch(waiting)), "234");
}

TEST(take_next_batch, operation_limit_ends_batch) {
    std::vector waiting{make_pending("1", {"a"}, shared_operations_max + 1),
                        make_pending("2", {"b"}, shared_operations_max - 1), make_pending("3", {"b"}, 2),
                        make_pending("4", {"b"}, 1)};
    EXPECT_EQ(ids(take_next_batch(waiting)), "1") << "a single write is taken whatever its size";
    EXPECT_EQ(ids(take_next_batch(waiting)), "2");
    EXPECT_EQ(ids(take_next_batch(waiting)), "34");
}

TEST(take_next_batch, group_taken_whole) {
    std::vector waiting{make_pending("1", {"a"}, shared_operations_max - 1), make_pending("2", {"b", "d"}),
                        make_pending("3", {"b", "d"}), make_pending("4", {"c"})};
    waiting[1].group = waiting[2].group = std::make_shared<int>();
    EXPECT_EQ(ids(take_next_batch(waiting)), "1") << "the second of the group does not fit";
    EXPECT_EQ(ids(take_next_batch(waiting)), "23") << "the resources of the second are locked already";
    EXPECT_EQ(ids(take_next_batch(waiting)), "4");
}

TEST(take_next_batch, groups_of_one_token_stay_apart) {
    std::vector<pending_write> waiting;
    for (const auto& group : {std::make_shared<int>(), std::make_shared<int>()}) {
        for (const auto* id : {"1", "2"}) {
            waiting.push_back(make_pending(id, {"a"}, shared_operations_max / 2));
            waiting.back().group = group;
        }
    }
    EXPECT_EQ(ids(take_next_batch(waiting)), "12") << "holds of a re-entrant lease have the same token";
    EXPECT_EQ(ids(take_next_batch(waiting)), "12");
}

TEST(sort_by_resource, order_of_arrival_kept_per_resource) {
    std::vector waiting{make_pending("1", {"b"}), make_pending("2", {"a"}), make_pending("3", {"b"}),
                        make_pending("4", {"a"})};
    sort_by_resource(waiting);
    EXPECT_EQ(ids(waiting), "2413");
}

TEST(isolated_write_executor, resource_isolated_until_last_write_ends) {
    postgres_config cfg;
    cfg.connections = 3;
    queued_jobs queued(cfg.queue_max);
    catalog_store catalogs;
    isolated_write_executor executor(cfg, queued, catalogs, test::large_budget());
    const auto named = [](const char* name) { return std::vector{lockcore::resource_name::parse(name).value()}; };
    EXPECT_FALSE(executor.has_writes_on(named("a")));
    executor.submit(make_pending("1", {"a", "b"}), later_writes::in_its_queue);
    executor.submit(make_pending("2", {"c"}), later_writes::in_its_queue);
    executor.submit(make_pending("3", {"b"}), later_writes::in_its_queue);
    auto refused = make_pending("4", {"d"});
    refused.request.initiator.principal = "another";
    executor.submit(std::move(refused), later_writes::in_batches);
    EXPECT_TRUE(executor.has_writes_on(named("a")) && executor.has_writes_on(named("b")) &&
                executor.has_writes_on(named("c")));
    EXPECT_FALSE(executor.has_writes_on(named("d"))) << "refused by a batch: the next batches go on";
    EXPECT_EQ(executor.workers()[0]->load(), 2U) << "writes on one resource share a queue";
    EXPECT_EQ(executor.workers()[1]->load(), 1U);
    for (const auto& worker : executor.workers())
        worker->abandon();
    EXPECT_FALSE(executor.has_writes_on(named("a")) || executor.has_writes_on(named("b")) ||
                 executor.has_writes_on(named("c")));
}

TEST(isolated_write_executor, principal_leaves_a_worker_to_others) {
    postgres_config cfg;
    cfg.connections = 4;
    queued_jobs queued(100);
    catalog_store catalogs;
    isolated_write_executor executor(cfg, queued, catalogs, test::large_budget());
    const auto submit = [&executor](const std::string& principal, const std::string& resource) {
        auto write = make_pending(resource, {resource});
        write.request.initiator.principal = principal;
        executor.submit(std::move(write), later_writes::in_its_queue);
    };
    for (int i = 0; i < 9; ++i)
        submit("flood", "r" + std::to_string(i));
    for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(executor.workers()[i]->load(), 3U);
    submit("good", "s");
    EXPECT_EQ(executor.workers()[3]->load(), 1U);
    for (const auto& worker : executor.workers())
        worker->abandon();
    submit("flood", "after");
}

// A batch and the callers that wait for it

/// A batch of four on a fake server, with what was handed on.
class batch_test : public ::testing::Test {
  protected:
    batch_test() {
        for (const auto* id : {"1", "2", "3", "4"}) {
            auto write = make_pending(id, {std::string(1, static_cast<char>('a' + batch.size()))});
            callers.push_back(std::static_pointer_cast<test_caller<committed_write>>(write.caller));
            batch.push_back(std::move(write));
        }
        batch[1].request.seal = true;
        batch[2].request.key = idempotency_key{"k", std::string(64, 'a'), std::chrono::milliseconds(5)};
    }

    void run(fake_session& session) {
        session.known = make_catalog();
        auto unanswered =
            run_and_answer_batch(session, session, test::large_budget(), std::move(batch), unjoinable, flush);
        undurable = std::move(unanswered.undurable.writes);
        for (auto& each : unanswered.left) {
            if (each.waited) followed.push_back(each.pending.request.write_id);
            isolated.push_back(std::move(each.pending));
        }
    }

    /// Runs what left the batch as the isolated workers do.
    void run_isolated(fake_session& session) {
        for (auto& write : std::exchange(isolated, {}))
            run_and_answer(session, session, test::large_budget(), write);
    }

    void expect_each_answered_truly(const fake_session& session) const {
        for (std::size_t i = 0; i < callers.size(); ++i) {
            const auto id = std::to_string(i + 1);
            const bool handed_on =
                std::ranges::any_of(isolated, [&](const auto& write) { return write.request.write_id == id; });
            EXPECT_EQ(callers[i]->answers, handed_on ? 0 : 1) << id;
            if (!callers[i]->got) continue;
            const auto& answer = *callers[i]->got;
            if (answer) {
                EXPECT_EQ(session.committed.count(id), 1U) << id;
            } else if (!answer.error().outcome_unknown) {
                EXPECT_EQ(session.committed.count(id), 0U) << id << answer.error().detail;
            }
        }
    }

    std::vector<pending_write> batch;
    std::vector<std::shared_ptr<test_caller<committed_write>>> callers;
    std::vector<pending_write> isolated;
    std::vector<std::string> followed;  ///< Those behind which later writes on the resource wait.
    std::vector<undurable_write> undurable;
    flush_mode flush = flush_mode::by_commit;
    unjoinable_updates unjoinable;
};

TEST_F(batch_test, success_each_answered_once) {
    fake_session session;
    run(session);
    expect_each_answered_truly(session);
    EXPECT_EQ(session.committed.size(), 4U);
    EXPECT_EQ(std::ranges::count(session.log, "commit"), 1);
}

TEST_F(batch_test, flush_deferred_only_sealed_answered_early) {
    flush = flush_mode::deferred_if_shared;
    fake_session session;
    run(session);
    ASSERT_EQ(undurable.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i)
        EXPECT_EQ(callers[i]->answers, i == 1 ? 1 : 0);
    EXPECT_TRUE(callers[1]->got->value().durability) << "its caller waits for the disk itself";
    undurable[0].answer(std::nullopt);
    EXPECT_TRUE(*callers[0]->got);
    undurable[2].answer(make_failure(errc::storage_unavailable, "gone"));
    EXPECT_FALSE(*callers[2]->got);
}

TEST_F(batch_test, single_write_answered_by_commit_while_flush_is_idle) {
    batch.resize(1);
    flush = flush_mode::deferred_if_shared;
    fake_session session;
    run(session);
    EXPECT_TRUE(undurable.empty());
    EXPECT_EQ(callers[0]->answers, 1);
}

TEST_F(batch_test, single_write_deferred_if_sealed_or_flush_busy) {
    const auto several = batch;
    for (const bool sealed : {false, true}) {
        batch = {several[sealed ? 1 : 0]};
        flush = sealed ? flush_mode::deferred_if_shared : flush_mode::deferred;
        fake_session session;
        run(session);
        EXPECT_EQ(undurable.size(), 1U) << sealed;
    }
}

TEST_F(batch_test, refused_write_passed_to_isolated_worker) {
    std::get<update_operation>(batch[0].request.operations[0]).set[0].name = "id";
    fake_session session;
    session.refused_text = "set \"id\"";
    session.fault_sqlstate = "23505";
    run(session);
    EXPECT_EQ(ids(isolated), "1") << "a refusal with a key reads the catalog, which may take long";
    EXPECT_TRUE(followed.empty());
    run_isolated(session);
    expect_each_answered_truly(session);
    EXPECT_EQ(callers[0]->got->error().code, errc::constraint_violation);
    EXPECT_EQ(session.committed.size(), 3U);
    EXPECT_EQ(session.recorded.size(), 1U);
}

TEST_F(batch_test, lock_wait_passed_to_isolated_worker) {
    std::get<update_operation>(batch[0].request.operations[0]).set[0].name = "id";
    fake_session session;
    session.refused_text = "set \"id\"";
    run(session);
    expect_each_answered_truly(session);
    EXPECT_EQ(ids(isolated), "1");
    EXPECT_EQ(followed, (std::vector<std::string>{"1"}));
}

TEST_F(batch_test, unknown_table_refused_alone) {
    std::get<update_operation>(batch[3].request.operations[0]).table = "nothing";
    fake_session session;
    run(session);
    EXPECT_EQ(ids(isolated), "4");
    run_isolated(session);
    expect_each_answered_truly(session);
    EXPECT_EQ(callers[3]->got->error().code, errc::unprocessable);
    EXPECT_EQ(session.committed.size(), 3U);
}

TEST_F(batch_test, late_write_refused_alone) {
    batch[1].until = std::chrono::steady_clock::now();
    fake_session session;
    run(session);
    expect_each_answered_truly(session);
    EXPECT_EQ(callers[1]->got->error().code, errc::storage_unavailable);
    EXPECT_EQ(session.committed.size(), 3U);
}

/// The second and third writes are a group, which seals its token.
class group_test : public batch_test {
  protected:
    group_test() {
        batch[2].request.resources = batch[1].request.resources;
        batch[2].request.seal = true;
        batch[1].group = batch[2].group = std::make_shared<int>();
    }

    bool is_sealed(std::size_t i) const { return callers[i]->got->value().outcome.sealed; }
};

TEST_F(group_test, all_committed_sealed_and_answered_early) {
    flush = flush_mode::deferred_if_shared;
    fake_session session;
    run(session);
    EXPECT_EQ(std::ranges::count(session.log, "commit"), 1);
    ASSERT_TRUE(callers[1]->got && callers[2]->got);
    EXPECT_TRUE(is_sealed(1) && is_sealed(2));
    EXPECT_TRUE(callers[2]->got->value().durability);
}

TEST_F(group_test, one_leaves_token_not_sealed) {
    std::get<update_operation>(batch[1].request.operations[0]).set[0].name = "id";
    flush = flush_mode::deferred_if_shared;
    fake_session session;
    session.refused_text = "set \"id\"";
    session.fault_sqlstate = "23505";
    run(session);
    EXPECT_EQ(ids(isolated), "2");
    EXPECT_FALSE(isolated[0].request.seal);
    EXPECT_TRUE(session.sealed.empty()) << "the other needs the token";
    ASSERT_TRUE(callers[2]->got);
    EXPECT_FALSE(is_sealed(2));
    EXPECT_TRUE(callers[2]->got->value().durability) << "the lease is released when both are visible";
    run_isolated(session);
    EXPECT_EQ(callers[1]->got->error().code, errc::constraint_violation);
}

TEST_F(group_test, one_not_planned_token_not_sealed) {
    std::get<update_operation>(batch[2].request.operations[0]).table = "nothing";
    fake_session session;
    run(session);
    EXPECT_EQ(ids(isolated), "3");
    EXPECT_FALSE(isolated[0].request.seal || is_sealed(1));
    EXPECT_TRUE(session.sealed.empty());
}

TEST_F(group_test, other_leaves_group_sealed) {
    std::get<update_operation>(batch[3].request.operations[0]).table = "nothing";
    fake_session session;
    run(session);
    EXPECT_EQ(ids(isolated), "4");
    EXPECT_TRUE(is_sealed(1) && is_sealed(2));
}

TEST_F(batch_test, unreachable_server_tried_once) {
    fake_session session;
    session.connected = false;
    session.stays_unreachable = true;
    run(session);
    expect_each_answered_truly(session);
    for (const auto& caller : callers)
        EXPECT_EQ(caller->got->error().code, errc::storage_unavailable);
    EXPECT_LE(std::ranges::count(session.log, "connect"), 1);
}

TEST_F(batch_test, each_message_fails_answers_once_and_true) {
    fake_session whole;
    const auto again = batch;
    run(whole);
    for (std::size_t at = 0; at < whole.messages; ++at) {
        for (const auto kind : {fault::lost_before, fault::lost_after, fault::refused}) {
            SCOPED_TRACE("message " + std::to_string(at) + " fault " + std::to_string(static_cast<int>(kind)));
            batch = again;
            isolated.clear();
            for (std::size_t i = 0; i < batch.size(); ++i) {
                callers[i] = std::make_shared<test_caller<committed_write>>();
                batch[i].caller = callers[i];
            }
            fake_session session;
            session.fault_at = at;
            session.kind = kind;
            session.fault_step = 3;
            run(session);
            EXPECT_FALSE(session.open);
            run_isolated(session);
            expect_each_answered_truly(session);
            EXPECT_FALSE(session.open);
        }
    }
}

// Kept outcomes

TEST(look_up_batch, each_lookup_answered_by_its_row) {
    fake_session session;
    session.keys["b"] = {"running", ""};
    std::vector<std::shared_ptr<test_caller<found_outcome>>> callers;
    std::vector<pending_lookup> lookups;
    for (const auto* key : {"a", "b"}) {
        callers.push_back(std::make_shared<test_caller<found_outcome>>());
        lookups.push_back({{"orders", {key, std::string(64, 'a'), {}}}, soon(), callers.back()});
    }
    outcome_lookup::run_batch(session, lookups);
    EXPECT_FALSE(callers[0]->got->value().value);
    EXPECT_EQ((*callers[1]->got->value().value).error().code, errc::idempotency_in_progress);
}

TEST(look_up_batch, each_message_fails_answered_or_retried) {
    for (std::size_t at = 0; at < 2; ++at) {
        for (const auto kind : {fault::lost_before, fault::lost_after, fault::refused}) {
            fake_session session;
            session.fault_at = at;
            session.kind = kind;
            const auto caller = std::make_shared<test_caller<found_outcome>>();
            outcome_lookup::run_batch(session, {{{"orders", {"a", std::string(64, 'a'), {}}}, soon(), caller}});
            ASSERT_EQ(caller->answers, 1);
            EXPECT_EQ(caller->got->has_value(), kind != fault::refused) << "a look may be repeated";
        }
    }
}

TEST(look_up_batch, too_few_rows_all_refused) {
    fake_session session;
    session.answers["find_outcomes"] = [](const compat::parameters&) { return test::make_rows({}); };
    const auto caller = std::make_shared<test_caller<found_outcome>>();
    outcome_lookup::run_batch(session, {{{"orders", {"a", std::string(64, 'a'), {}}}, soon(), caller}});
    EXPECT_EQ(caller->got->error().code, errc::internal_error);
}

}  // namespace
}  // namespace fencegate::pg
