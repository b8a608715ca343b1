#include <gateway/audit/expiry_watch.hpp>

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using std::chrono::seconds;
using time_point = audit::expiry_schedule::time_point;

const time_point start{seconds(1'000)};

audit::expiry_schedule::watched_lease lease_of(const std::string& name, std::uint64_t token, time_point until) {
    audit::expiry_schedule::watched_lease out;
    out.attempt_id = lockcore::nonce::from_bits(0, token);
    out.resources = {*lockcore::resource_name::parse(name)};
    out.token = lockcore::fencing_token{token};
    out.since = out.granted_at = start;
    out.until = until;
    return out;
}

std::string next_of(audit::expiry_schedule& schedule, time_point now) {
    const auto lease = schedule.take_due(now);
    return lease ? lease->resources.front().str() : "-";
}

TEST(expiry_schedule, due_leases_in_order_of_expiry_each_once) {
    audit::expiry_schedule schedule;
    schedule.add_lease(lease_of("b", 1, start + seconds(2)));
    schedule.add_lease(lease_of("a", 2, start + seconds(1)));
    EXPECT_EQ(next_of(schedule, start), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "a");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "b");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "-");
}

TEST(expiry_schedule, renewed_lease_due_after_renewal) {
    audit::expiry_schedule schedule;
    const auto lease = lease_of("a", 1, start + seconds(1));
    schedule.add_lease(lease);
    schedule.add_lease(lease_of("a", 1, start + seconds(5)));
    EXPECT_EQ(next_of(schedule, start + seconds(4)), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(5)), "a");
}

TEST(expiry_schedule, renewal_with_shorter_ttl_and_checks_leave_the_end) {
    audit::expiry_schedule schedule;
    const auto lease = lease_of("a", 1, start + seconds(5));
    schedule.add_lease(lease);
    schedule.add_lease(lease_of("a", 1, start + seconds(3)));
    EXPECT_EQ(next_of(schedule, start + seconds(4)), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(5)), "a");
    schedule.schedule_check(lease, start + seconds(9));
    const auto due = schedule.take_due(start + seconds(9));
    ASSERT_TRUE(due);
    EXPECT_EQ(due->until, start + seconds(5)) << "to which the renewals of other gateways are compared";
}

TEST(expiry_schedule, renewed_lease_of_another_gateway_is_added) {
    audit::expiry_schedule schedule;
    auto lease = lease_of("a", 1, start + seconds(1));
    lease.granted_here = false;
    schedule.add_lease(lease);
    schedule.add_lease(lease_of("a", 1, start + seconds(5)));
    EXPECT_FALSE(schedule.take_due(start + seconds(4)));
    const auto due = schedule.take_due(start + seconds(5));
    ASSERT_TRUE(due);
    EXPECT_FALSE(due->granted_here);
}

TEST(expiry_schedule, scheduled_check_is_due_then) {
    audit::expiry_schedule schedule;
    const auto lease = lease_of("a", 1, start);
    schedule.add_lease(lease);
    EXPECT_EQ(next_of(schedule, start), "a");
    schedule.schedule_check(lease, start + seconds(2));
    EXPECT_EQ(next_of(schedule, start + seconds(1)), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(2)), "a");
    EXPECT_TRUE(schedule.remove_lease(lease.attempt_id));
    EXPECT_FALSE(schedule.remove_lease(lease.attempt_id));
    schedule.schedule_check(lease, start);
    EXPECT_EQ(next_of(schedule, start + seconds(9)), "-");
}

TEST(expiry_schedule, shared_leases_of_one_token_are_two) {
    audit::expiry_schedule schedule;
    auto first = lease_of("a", 1, start), second = first;
    second.attempt_id = lockcore::nonce::from_bits(1, 1);
    schedule.add_lease(first);
    schedule.add_lease(second);
    EXPECT_TRUE(schedule.remove_lease(first.attempt_id));
    EXPECT_EQ(next_of(schedule, start), "a");
}

TEST(expiry_schedule, removed_leases_leave_nothing) {
    audit::expiry_schedule schedule;
    for (std::uint64_t token = 1; token <= 1'000; ++token) {
        const auto lease = lease_of("a", token, start + seconds(3'600));
        schedule.add_lease(lease);
        if (token % 2 == 0) schedule.add_lease(lease_of("a", token, start + seconds(4'000)));
        EXPECT_TRUE(schedule.remove_lease(lease.attempt_id));
    }
    EXPECT_EQ(schedule.leases(), 0U);
    EXPECT_EQ(schedule.scheduled_checks(), 0U);
}

}  // namespace
}  // namespace fencegate
