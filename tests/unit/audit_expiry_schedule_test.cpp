#include <gateway/audit/expiry_schedule.hpp>

#include <gtest/gtest.h>

namespace fencegate {
namespace {

using std::chrono::seconds;
using time_point = audit::expiry_schedule::time_point;

const time_point start{seconds(1'000)};

audit::expiry_schedule::watched lease_of(const std::string& name, std::uint64_t token, time_point until) {
    return {{*lockcore::resource_name::parse(name)}, lockcore::fencing_token{token}, {}, until};
}

std::string next_of(audit::expiry_schedule& schedule, time_point now) {
    const auto lease = schedule.next(now);
    return lease ? lease->resources.front().str() : "-";
}

TEST(expiry_schedule, leases_then_in_the_order_in_which_they_run_out_and_each_once) {
    audit::expiry_schedule schedule;
    schedule.granted(lease_of("b", 1, start + seconds(2)));
    schedule.granted(lease_of("a", 2, start + seconds(1)));
    EXPECT_EQ(next_of(schedule, start), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "a");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "b");
    EXPECT_EQ(next_of(schedule, start + seconds(3)), "-");
}

TEST(expiry_schedule, renewed_then_only_after_that) {
    audit::expiry_schedule schedule;
    const auto lease = lease_of("a", 1, start + seconds(1));
    schedule.granted(lease);
    schedule.renewed(lease.resources, lease.token, start + seconds(5));
    EXPECT_EQ(next_of(schedule, start + seconds(4)), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(5)), "a");
}

TEST(expiry_schedule, looked_at_again_then_at_that_time) {
    audit::expiry_schedule schedule;
    const auto lease = lease_of("a", 1, start);
    schedule.granted(lease);
    EXPECT_EQ(next_of(schedule, start), "a");
    schedule.look_again(lease, start + seconds(2));
    EXPECT_EQ(next_of(schedule, start + seconds(1)), "-");
    EXPECT_EQ(next_of(schedule, start + seconds(2)), "a");
    EXPECT_TRUE(schedule.ended(lease.resources, lease.token));
    EXPECT_FALSE(schedule.ended(lease.resources, lease.token));
    schedule.look_again(lease, start);
    EXPECT_EQ(next_of(schedule, start + seconds(9)), "-");
}

TEST(expiry_schedule, given_back_then_nothing_of_them_is_kept) {
    audit::expiry_schedule schedule;
    for (std::uint64_t token = 1; token <= 1'000; ++token) {
        const auto lease = lease_of("a", token, start + seconds(3'600));
        schedule.granted(lease);
        if (token % 2 == 0) schedule.renewed(lease.resources, lease.token, start + seconds(4'000));
        EXPECT_TRUE(schedule.ended(lease.resources, lease.token));
    }
    EXPECT_EQ(schedule.sizes(), std::pair(std::size_t{0}, std::size_t{0}));
}

}  // namespace
}  // namespace fencegate
