#include "api_one_shot_groups.hpp"

namespace fencegate::api {
namespace {

using test::one_shot_groups;
using writes = std::vector<std::string>;

TEST_F(one_shot_groups, group_ends_with_its_lease_and_its_first_deadline) {
    using namespace std::chrono_literals;
    send_all({"1", "2"});
    grant("1");
    EXPECT_LE(ports.latest, std::chrono::steady_clock::now() + 10s) << "the validity";
    ports.latest = {};
    send("3", {.time = 5s});
    send("4");
    grant("4");
    EXPECT_LE(ports.latest, std::chrono::steady_clock::now() + 5s) << "the deadline of one is that of all";
    send("5");
    grant("5");
    EXPECT_GT(ports.latest, std::chrono::steady_clock::now() + 50s) << "alone it has its own";
}

TEST_F(one_shot_groups, waiting_writes_share_the_lease) {
    send_all({"1", "2", "3"});
    grant("1");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2", "3"}}));
    EXPECT_EQ(ports.sealing, (writes{"1", "2", "3"})) << "the transaction seals the token once";
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.cancelled, 2U) << "the others leave the queue";
    std::vector<std::string> ids;
    for (const auto& [id, report] : reports) {
        ASSERT_TRUE(report) << id;
        EXPECT_TRUE(report->own_lease && report->release->released && report->outcome.sealed);
        EXPECT_EQ(lockcore::value_of(report->outcome.token), 101U);
        ids.push_back(report->outcome.write_id);
    }
    EXPECT_EQ(ids.size(), 3U);
    EXPECT_TRUE(ids[0] != ids[1] && ids[1] != ids[2]) << "each write has its own write_id";
    send("4");
    grant("4");
    EXPECT_EQ(ports.tokens["4"], 102U) << "the next group has the next lease";
}

TEST_F(one_shot_groups, any_granted_first_order_of_arrival_kept) {
    send_all({"1", "2", "3"});
    grant("3");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2", "3"}}));
}

TEST_F(one_shot_groups, other_holder_resources_ttl_not_shared) {
    send("1");
    send("2", {.owner = "another"});
    send("3", {.resources = {"a", "b"}});
    send("4", {.resources = {"b"}});
    send("5", {.resources = {"b", "a"}});
    grant("1");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1"}}));
    grant("3");
    EXPECT_EQ(ports.groups.back(), (writes{"3", "5"})) << "the order of the names says nothing";
    EXPECT_TRUE(ports.acquires("2") && ports.acquires("4"));
    refuse("2");
    refuse("4");
}

TEST_F(one_shot_groups, group_has_64_writes) {
    writes ids;
    for (int i = 100; i < 200; ++i)
        ids.push_back(std::to_string(i));
    send_all(ids);
    grant("100");
    EXPECT_EQ(ports.groups.front(), writes(ids.begin(), ids.begin() + 64));
    grant("164");
    EXPECT_EQ(ports.groups.back(), writes(ids.begin() + 64, ids.end()));
    EXPECT_EQ(reports.size(), 100U);
}

TEST_F(one_shot_groups, operations_of_one_transaction_end_a_group) {
    send("1", {.operations = 64});
    send("2", {.operations = 64});
    send("3", {.operations = 2});
    send("4");
    grant("1");
    EXPECT_EQ(ports.groups.back(), (writes{"1", "2"}));
    grant("3");
    EXPECT_EQ(ports.groups.back(), (writes{"3", "4"}));
}

TEST_F(one_shot_groups, function_runs_alone) {
    send("1");
    send("2", {.calls = true});
    send("3");
    grant("1");
    EXPECT_EQ(ports.groups.back(), (writes{"1", "3"}));
    send("4");
    grant("2");
    EXPECT_EQ(ports.groups.back(), writes{"2"});
    grant("4");
}

TEST_F(one_shot_groups, each_refused_for_itself) {
    send_all({"1", "2", "3"});
    ports.refused["2"] = make_failure(errc::expectation_failed, "sold out");
    ports.refused["2"].durability_unproven = true;
    grant("1");
    EXPECT_EQ(ports.proofs, 1U) << "after the release it waits until what it has seen is on disk";
    EXPECT_TRUE(is_applied("1") && is_applied("3"));
    EXPECT_EQ(reports.at("2").error().detail, "sold out");
    EXPECT_TRUE(reports.at("2").error().facts.contains("write_id"));
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.seals_after, 0U);
}

TEST_F(one_shot_groups, all_refused_lease_released) {
    send_all({"1", "2"});
    for (const auto* id : {"1", "2"})
        ports.refused[id] = make_failure(errc::expectation_failed, "sold out");
    grant("1");
    EXPECT_EQ(ports.releases, 1U);
    EXPECT_EQ(ports.seals_after, 0U) << "nothing was written with the token";
    EXPECT_FALSE(is_applied("1") || is_applied("2"));
}

TEST_F(one_shot_groups, unsealed_group_sealed_once_after_release) {
    send_all({"1", "2", "3"});
    ports.seals_writes = false;
    ports.refused["3"] = make_failure(errc::constraint_violation, "null");
    grant("1");
    EXPECT_EQ(ports.seals_after, 1U);
    EXPECT_TRUE(reports.at("1")->outcome.sealed && reports.at("2")->outcome.sealed);
}

TEST_F(one_shot_groups, unknown_outcome_of_one_lease_left_to_expire) {
    send_all({"1", "2"});
    failure unknown = make_failure(errc::storage_unavailable, "broke");
    unknown.outcome_unknown = true;
    ports.refused["2"] = unknown;
    grant("1");
    EXPECT_EQ(ports.releases, 0U);
    ASSERT_TRUE(is_applied("1"));
    EXPECT_FALSE(reports.at("1")->release->released);
    EXPECT_TRUE(reports.at("2").error().outcome_unknown);
}

TEST_F(one_shot_groups, refused_acquisition_concerns_one_write) {
    send_all({"1", "2", "3"});
    refuse("1");
    EXPECT_EQ(reports.at("1").error().code, errc::resource_locked);
    EXPECT_TRUE(ports.acquires("2")) << "it keeps its place in the queue";
    grant("2");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"2", "3"}}));
}

TEST_F(one_shot_groups, caller_hangs_up_the_others_stay) {
    send_all({"1", "2", "3"});
    hang_up("1");
    EXPECT_EQ(reports.at("1").error().code, errc::shutting_down);
    hang_up("3");
    grant("2");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"2"}}));
    EXPECT_EQ(ports.releases, 1U);
}

TEST_F(one_shot_groups, taken_write_ends_although_its_caller_hangs_up) {
    send_all({"1", "2"});
    ports.held = true;
    grant("1");
    hang_up("2");
    hang_up("1");
    EXPECT_TRUE(reports.empty());
    ports.finish_writes();
    run();
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
}

TEST_F(one_shot_groups, not_taken_after_its_caller_hung_up) {
    send_all({"1", "2"});
    ports.ignores_cancel = true;
    hang_up("2");
    grant("1");
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1"}}));
    refuse("2");
    EXPECT_EQ(reports.at("2").error().code, errc::shutting_down) << "nothing was written";
}

TEST_F(one_shot_groups, taken_write_gets_its_answer_if_acquire_throws) {
    send_all({"1", "2"});
    ports.cancelled_throws = true;
    grant("1");
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
    EXPECT_TRUE(threw.empty());
}

TEST_F(one_shot_groups, taken_write_releases_a_lease_of_its_own) {
    send_all({"1", "2"});
    ports.grant("1");
    ports.grant("2");
    run();
    EXPECT_EQ(ports.groups, (std::vector<writes>{{"1", "2"}}));
    EXPECT_EQ(ports.releases, 2U);
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
}

TEST_F(one_shot_groups, answers_stay_if_the_release_throws) {
    ports.release_throws = true;
    send_all({"1", "2"});
    ports.grant("1");
    ports.grant("2");
    run();
    EXPECT_EQ(ports.releases, 2U);
    EXPECT_TRUE(is_applied("1") && is_applied("2"));
    EXPECT_TRUE(threw.empty());
}

TEST_F(one_shot_groups, seal_not_prepared_none_written) {
    send_all({"1", "2"});
    ports.reentrant = true;
    ports.closes = false;
    grant("1");
    EXPECT_TRUE(ports.groups.empty());
    EXPECT_EQ(ports.releases, 1U);
    for (const auto& [id, report] : reports)
        EXPECT_EQ(report.error().detail, "close") << id;
    EXPECT_EQ(reports.size(), 2U);
}

TEST_F(one_shot_groups, exception_answers_those_that_were_taken) {
    send_all({"1", "2", "3"});
    ports.throws = true;
    grant("1");
    EXPECT_EQ(threw, writes{"1"});
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_TRUE(reports.at("2").error().outcome_unknown);
}

}  // namespace
}  // namespace fencegate::api
