#include <gateway/limits/limiter.hpp>

#include <gtest/gtest.h>
#include <boost/asio/ip/address.hpp>

#include <chrono>
#include <string>
#include <vector>

namespace fencegate::limits {
namespace {

using namespace std::chrono_literals;

const time_point start = time_point() + 1'000'000s;

boost::asio::ip::address peer(const char* text) {
    return boost::asio::ip::make_address(text);
}

bucket_size bucket(std::size_t per_second, std::size_t burst) {
    return make_bucket_size({per_second, burst});
}

// A bucket

TEST(request_bucket, burst_at_once_then_one_for_each_interval) {
    request_bucket level;
    const auto limit = bucket(10, 3);
    for (std::size_t left : {2U, 1U, 0U})
        EXPECT_EQ(level.take(limit, start).remaining, left);
    const auto refused = level.take(limit, start);
    EXPECT_FALSE(refused.admitted);
    EXPECT_EQ(refused.retry_after, 100ms);
    EXPECT_FALSE(level.take(limit, start + 99ms).admitted);
    EXPECT_TRUE(level.take(limit, start + 100ms).admitted);
    EXPECT_FALSE(level.take(limit, start + 199ms).admitted);
}

TEST(request_bucket, refused_requests_take_nothing) {
    request_bucket level;
    const auto limit = bucket(1, 1);
    EXPECT_TRUE(level.take(limit, start).admitted);
    for (int i = 0; i < 1'000; ++i)
        EXPECT_FALSE(level.take(limit, start + 999ms).admitted);
    EXPECT_TRUE(level.take(limit, start + 1s).admitted);
}

TEST(request_bucket, long_pause_then_full_and_not_more) {
    request_bucket level;
    const auto limit = bucket(100, 5);
    EXPECT_TRUE(level.take(limit, start).admitted);
    std::size_t admitted = 0;
    while (level.take(limit, start + 1h).admitted)
        ++admitted;
    EXPECT_EQ(admitted, 5U);
}

TEST(request_bucket, level_says_what_is_left_and_when_it_is_full) {
    request_bucket level;
    const auto limit = bucket(10, 10);
    level.take(limit, start);
    const auto after = level.take(limit, start);
    EXPECT_EQ(after.remaining, 8U);
    EXPECT_EQ(after.until_full, 200ms);
    EXPECT_EQ(level.level(limit, start + 150ms).remaining, 9U);
    EXPECT_EQ(level.level(limit, start + 200ms).until_full, 0ms);
}

TEST(request_bucket, limit_lowered_then_wait_is_that_of_an_empty_bucket) {
    request_bucket level;
    const auto large = bucket(1, 1'000);
    for (int i = 0; i < 1'000; ++i)
        level.take(large, start);
    EXPECT_EQ(level.level(bucket(1, 2), start).retry_after, 1s);
}

TEST(bucket_size, burst_not_given_then_requests_of_a_second) {
    EXPECT_EQ(bucket(20, 0).size, 20U);
    EXPECT_FALSE(bucket(0, 0).is_limited());
    EXPECT_EQ(make_bucket_size_per_minute(60).interval, 1s);
}

// The fields of an answer

TEST(rate_fields, several_limits_are_one_list_in_order) {
    rate_fields fields;
    EXPECT_TRUE(fields.empty());
    fields.add("address", bucket(50, 200), {true, 150, 1s, 0s});
    fields.add("principal", bucket(100, 0), {false, 0, 950ms, 10ms});
    EXPECT_EQ(fields.policy, "\"address\";q=200;w=4, \"principal\";q=100;w=1");
    EXPECT_EQ(fields.state, "\"address\";r=150;t=1, \"principal\";r=0;t=1");
}

// Bounded maps

TEST(recent_map, full_then_longest_unused_is_replaced) {
    recent_map<int, int> map(2);
    map.find_or_add(1) = 10;
    map.find_or_add(2) = 20;
    map.find_or_add(1);
    map.find_or_add(3) = 30;
    EXPECT_EQ(map.size(), 2U);
    EXPECT_EQ(map.find_or_add(1), 10);
    EXPECT_EQ(map.find_or_add(2), 0) << "it was replaced";
}

TEST(recent_map, entries_in_use_are_kept_above_the_limit) {
    recent_map<int, int> map(2);
    const auto is_in_use = [](int value) { return value > 0; };
    map.find_or_add(1, is_in_use) = 1;
    map.find_or_add(2, is_in_use) = 1;
    map.find_or_add(3, is_in_use) = 0;
    EXPECT_EQ(map.size(), 3U);
    map.find_or_add(4, is_in_use);
    EXPECT_EQ(map.size(), 3U) << "3 was replaced";
}

// Addresses

limits_config config_of_address(std::size_t per_second, std::size_t failures) {
    limits_config out;
    out.address.requests.per_second = per_second;
    out.address.failed_authentications_per_minute = failures;
    return out;
}

TEST(limiter, address_above_rate_refused_alone) {
    limiter l(config_of_address(2, 0), {}, true);
    rate_fields fields;
    EXPECT_TRUE(l.admit_address(peer("10.0.0.1"), start, fields));
    EXPECT_TRUE(l.admit_address(peer("::ffff:10.0.0.1"), start, fields)) << "the same address";
    const auto refused = l.admit_address(peer("10.0.0.1"), start, fields);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::too_many_requests);
    EXPECT_EQ(refused.error().retry_after, 500ms);
    EXPECT_TRUE(l.admit_address(peer("10.0.0.2"), start, fields));
    EXPECT_EQ(l.refused(refusal::address_rate), 1U);
    EXPECT_EQ(l.refused(refusal::principal_rate), 0U);
}

TEST(limiter, ipv6_addresses_of_one_network_count_together) {
    limiter l(config_of_address(1, 0), {}, true);
    rate_fields fields;
    EXPECT_TRUE(l.admit_address(peer("2001:db8:0:1::1"), start, fields));
    EXPECT_FALSE(l.admit_address(peer("2001:db8:0:1:ffff::2"), start, fields));
    EXPECT_TRUE(l.admit_address(peer("2001:db8:0:2::1"), start, fields));
}

TEST(limiter, requests_of_leases_have_their_own_buckets) {
    limits_config config = config_of_address(1, 0);
    config.principal.requests.per_second = 1;
    limiter l(config, {}, true);
    const auto caller = l.caller_of("a");
    for (const auto kind : {request_class::other, request_class::of_lease}) {
        rate_fields fields;
        EXPECT_TRUE(l.admit_address(peer("10.0.0.1"), start, fields, kind));
        EXPECT_TRUE(l.admit_principal(*caller, start, fields, kind));
        EXPECT_EQ(fields.policy, kind == request_class::other
                                     ? R"("address";q=1;w=1, "principal";q=1;w=1)"
                                     : R"("address-leases";q=1;w=1, "principal-leases";q=1;w=1)");
        EXPECT_FALSE(l.admit_address(peer("10.0.0.1"), start, fields, kind));
        EXPECT_FALSE(l.admit_principal(*caller, start, fields, kind));
    }
}

TEST(limiter, no_limits_then_all_admitted_without_fields) {
    limiter l(config_of_address(0, 0), {}, true);
    rate_fields fields;
    const auto caller = l.caller_of("a");
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_TRUE(l.admit_address(peer("10.0.0.1"), start, fields));
        ASSERT_TRUE(l.admit_credential(peer("10.0.0.1"), "x", start));
        ASSERT_TRUE(l.admit_principal(*caller, start, fields));
        l.note_failed_authentication(peer("10.0.0.1"), "x", start);
    }
    EXPECT_TRUE(fields.empty());
}

TEST(limiter, invalid_credentials_then_no_other_is_checked) {
    limiter l(config_of_address(0, 3), {}, true);
    const auto address = peer("10.0.0.1");
    const auto guess = [&](const std::string& key, bool valid) {
        if (!l.admit_credential(address, key, start)) return false;
        if (valid) l.note_valid_credential(address, key, "principal");
        if (!valid) l.note_failed_authentication(address, key, start);
        return true;
    };
    EXPECT_TRUE(guess("good", true));
    for (const char* key : {"a", "b", "c"})
        EXPECT_TRUE(guess(key, false));
    EXPECT_FALSE(guess("d", false));
    EXPECT_FALSE(guess("right at last", true)) << "it is not even checked";
    EXPECT_TRUE(guess("good", true)) << "a credential that was valid here before";
    EXPECT_TRUE(l.admit_credential(peer("10.0.0.2"), "d", start)) << "another address";
    EXPECT_TRUE(l.admit_credential(address, "d", start + 20s));
    EXPECT_EQ(l.refused(refusal::failed_authentications), 2U);
}

TEST(limiter, credential_no_longer_valid_then_not_exempt) {
    limiter l(config_of_address(0, 1), {}, true);
    const auto address = peer("10.0.0.1");
    l.note_valid_credential(address, "key", "principal");
    l.note_failed_authentication(address, "key", start);
    EXPECT_FALSE(l.admit_credential(address, "key", start));
}

TEST(limiter, many_credentials_of_a_principal_leave_those_of_others) {
    limiter l(config_of_address(0, 1), {}, true);
    const auto address = peer("10.0.0.1");
    const auto note_many = [&](const std::string& principal, int count) {
        for (int i = 0; i < count; ++i)
            l.note_valid_credential(address, principal + std::to_string(i), principal);
    };
    l.note_valid_credential(address, "victim's", "victim");
    note_many("a", 1'000);
    note_many("b", 100);
    note_many("a", 2'000);
    l.note_failed_authentication(address, "wrong", start);
    EXPECT_TRUE(l.admit_credential(address, "victim's", start));
    EXPECT_TRUE(l.admit_credential(address, "b0", start));
    EXPECT_TRUE(l.admit_credential(address, "a1999", start)) << "its latest";
    EXPECT_FALSE(l.admit_credential(address, "a0", start)) << "its oldest";
}

// Principals

TEST(limiter, principal_has_its_own_limits_or_those_of_all) {
    limits_config limits;
    limits.principal.requests.per_second = 1;
    limits.principals["large"].requests.per_second = 5;
    limiter l(limits, {100, 40, 10}, true);
    const auto admitted = [&l](const char* name) {
        rate_fields fields;
        std::size_t count = 0;
        while (l.admit_principal(*l.caller_of(name), start, fields))
            ++count;
        return count;
    };
    EXPECT_EQ(admitted("small"), 1U);
    EXPECT_EQ(admitted("large"), 5U);
    EXPECT_EQ(admitted("other"), 1U);
    EXPECT_EQ(l.refused(refusal::principal_rate), 3U);
}

TEST(limiter, limits_reloaded_then_counts_remain) {
    limits_config limits;
    limits.principal.requests.per_second = 2;
    limits.principal.waiters_max = 2;
    limiter l(limits, {100, 40, 10}, true);
    const auto caller = l.caller_of("a");
    const place first(caller, use::waiters), second(caller, use::waiters);
    EXPECT_TRUE(second);
    rate_fields fields;
    EXPECT_TRUE(l.admit_principal(*caller, start, fields));
    EXPECT_TRUE(l.admit_principal(*caller, start, fields));

    limits.principal.waiters_max = 3;
    l.set_limits(limits, true);
    EXPECT_FALSE(l.admit_principal(*l.caller_of("a"), start, fields)) << "the bucket is still empty";
    const place third(l.caller_of("a"), use::waiters), fourth(l.caller_of("a"), use::waiters);
    EXPECT_TRUE(third);
    EXPECT_FALSE(fourth);

    limits.principal.requests.per_second = 0;
    l.set_limits(limits, true);
    EXPECT_TRUE(l.admit_principal(*caller, start, fields));
}

TEST(caller, without_limits_has_its_shares) {
    limiter l({}, {100, 40, 10}, true);
    const auto caller = l.caller_of("a");
    EXPECT_EQ(caller->most(use::requests), 100U);
    EXPECT_EQ(caller->most(use::waiters), 40U);
    EXPECT_EQ(caller->most(use::history_streams), 10U);
    EXPECT_EQ(caller->most(use::long_requests), 75U);
}

TEST(place, taken_up_to_limit_and_returned_by_destructor) {
    limits_config limits;
    limits.principal.streams_max = 2;
    limiter l(limits, {100, 40, 10}, true);
    const auto caller = l.caller_of("a");
    {
        place first(caller, use::streams);
        const place moved = std::move(first);
        const place second(caller, use::streams), third(caller, use::streams);
        EXPECT_TRUE(moved && second);
        EXPECT_FALSE(third);
        EXPECT_EQ(caller->count(use::streams), 2U);
        EXPECT_EQ(l.caller_of("b")->count(use::streams), 0U);
    }
    EXPECT_EQ(caller->count(use::streams), 0U);
}

}  // namespace
}  // namespace fencegate::limits
