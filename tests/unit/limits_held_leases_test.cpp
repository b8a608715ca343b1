#include <gateway/limits/held_leases.hpp>
#include <gateway/limits/limiter.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace fencegate::limits {
namespace {

using namespace std::chrono_literals;

class ignoring_observer final : public lockcore::event_observer {
  public:
    void on_event(lockcore::event) override { ++events; }
    int events = 0;
};

class held_leases_test : public testing::Test {
  protected:
    static limits_config config() {
        limits_config out;
        out.principal.leases_max = 2;
        return out;
    }
    static std::vector<lockcore::resource_name> named(const std::vector<std::string>& names) {
        std::vector<lockcore::resource_name> out;
        for (const auto& name : names)
            out.push_back(lockcore::resource_name::parse(name).value());
        return out;
    }
    static lockcore::acquire_request wanted(const std::vector<std::string>& names) {
        lockcore::acquire_request out;
        out.resources = named(names);
        out.holder.principal = "a";
        return out;
    }
    static lockcore::acquire_request wanted_shared(const std::string& name, const std::string& owner = {}) {
        lockcore::acquire_request out = wanted({});
        out.shared = named({name});
        out.holder.owner = owner;
        return out;
    }
    auto admit(const lockcore::acquire_request& request) {
        return held_.admit(limiter_.caller_of("a"), request, false, now_);
    }
    void report_shared(lockcore::event_kind kind, const std::string& name, std::uint64_t attempt,
                       const std::string& owner = {}, const std::string& principal = "a") {
        lockcore::event e;
        e.kind = kind;
        e.at = now_;
        e.resources = named({name});
        e.shared = 1;
        e.attempt_id = lockcore::nonce::from_bits(0, attempt);
        e.token = lockcore::fencing_token{7};
        (kind == lockcore::event_kind::lease_revoked ? e.revoked : e.actor) = {principal, owner};
        e.ttl = 1'000ms;
        held_.on_event(std::move(e));
    }
    void report(lockcore::event_kind kind, const std::vector<std::string>& names, std::uint64_t token,
                std::chrono::milliseconds at = 0ms, const std::string& principal = "a") {
        lockcore::event e;
        e.kind = kind;
        e.at = now_ + at;
        e.resources = named(names);
        e.token = lockcore::fencing_token{token};
        e.actor.principal = principal;
        e.ttl = 1'000ms;
        held_.on_event(std::move(e));
    }
    bool admits(const std::vector<std::string>& names, std::chrono::milliseconds at = 0ms) {
        return held_.admit(limiter_.caller_of("a"), wanted(names), false, now_ + at).has_value();
    }

    const lockcore::wall_time now_{1'700'000'000s};
    limiter limiter_{config(), {100, 40, 10}, true};
    ignoring_observer next_;
    held_leases held_{limiter_, next_};
};

using enum lockcore::event_kind;

TEST_F(held_leases_test, limit_reached_then_refused_until_release) {
    report(lease_granted, {"x"}, 1);
    report(lease_granted, {"y"}, 2);
    report(lease_granted, {"z"}, 3, 0ms, "b");
    EXPECT_EQ(held_.count("a", now_), 2U);
    EXPECT_FALSE(admits({"w"}));
    EXPECT_EQ(limiter_.refused(refusal::leases), 1U);
    report(lease_released, {"x"}, 1);
    EXPECT_TRUE(admits({"w"}));
    EXPECT_EQ(next_.events, 4);
}

TEST_F(held_leases_test, same_resources_again_do_not_count_twice) {
    report(lease_granted, {"x", "y"}, 1);
    report(lease_granted, {"z"}, 2);
    EXPECT_TRUE(admits({"y", "x"})) << "in any order";
    EXPECT_FALSE(admits({"x"})) << "another lease";
    report(lease_granted, {"z"}, 5);
    EXPECT_EQ(held_.count("a", now_), 2U) << "a later lease of the same resource";
    report(lease_released, {"z"}, 2);
    EXPECT_EQ(held_.count("a", now_), 2U) << "the release of the earlier one";
}

TEST_F(held_leases_test, expired_leases_count_no_longer_unless_renewed) {
    report(lease_granted, {"x"}, 1);
    report(lease_granted, {"y"}, 2);
    report(lease_renewed, {"y"}, 2, 500ms);
    EXPECT_EQ(held_.count("a", now_ + 999ms), 2U);
    EXPECT_EQ(held_.count("a", now_ + 1'000ms), 1U);
    EXPECT_EQ(held_.count("a", now_ + 1'500ms), 0U);
}

TEST_F(held_leases_test, acquisitions_under_way_count) {
    auto first = admit(wanted({"x"}));
    auto second = admit(wanted({"y"}));
    EXPECT_TRUE(first && second);
    EXPECT_FALSE(admits({"z"}));
    *first = held_leases::acquisition();
    EXPECT_TRUE(admits({"z"}));
}

TEST_F(held_leases_test, acquisitions_of_same_resources_count_once) {
    auto first = admit(wanted({"x"}));
    auto second = admit(wanted({"x"}));
    EXPECT_TRUE(first && second);
    EXPECT_EQ(held_.count("a", now_), 1U);
    *first = held_leases::acquisition();
    EXPECT_EQ(held_.count("a", now_), 1U);
    *second = held_leases::acquisition();
    EXPECT_EQ(held_.count("a", now_), 0U);
}

TEST_F(held_leases_test, acquisition_of_held_resources_counts_after_lease_has_expired) {
    report(lease_granted, {"x"}, 1);
    report(lease_granted, {"y"}, 2, 500ms);
    auto waiting = admit(wanted({"x"}));
    ASSERT_TRUE(waiting);
    EXPECT_EQ(held_.count("a", now_), 2U);
    EXPECT_FALSE(admits({"z"}, 1'200ms)) << "the waiting call may get its lease at any time";
    report(lease_granted, {"x"}, 3, 1'200ms);
    EXPECT_EQ(held_.count("a", now_ + 1'200ms), 2U);
    *waiting = held_leases::acquisition();
    EXPECT_EQ(held_.count("a", now_ + 1'200ms), 2U);
    report(lease_released, {"x"}, 3, 1'300ms);
    EXPECT_EQ(held_.count("a", now_ + 1'300ms), 1U);
}

TEST_F(held_leases_test, acquisition_outlives_the_lease_of_another_principal) {
    report(lease_granted, {"x"}, 1, 0ms, "b");
    auto waiting = admit(wanted({"x"}));
    EXPECT_EQ(held_.count("a", now_), 1U);
    EXPECT_EQ(held_.count("b", now_), 1U);
    report(lease_granted, {"x"}, 2);
    EXPECT_EQ(held_.count("a", now_), 1U);
    EXPECT_EQ(held_.count("b", now_), 0U);
}

TEST_F(held_leases_test, shared_leases_of_one_token_count_each) {
    report_shared(lease_granted, "x", 1);
    EXPECT_TRUE(admit(wanted_shared("x")));
    report_shared(lease_granted, "x", 2);
    EXPECT_EQ(held_.count("a", now_), 2U);
    EXPECT_FALSE(admit(wanted_shared("x"))) << "each is another lease";
    report_shared(lease_released, "x", 1);
    EXPECT_EQ(held_.count("a", now_), 1U);
    report_shared(lease_revoked, "x", 2);
    EXPECT_EQ(held_.count("a", now_), 0U);
}

TEST_F(held_leases_test, shared_lease_of_named_owner_counts_once) {
    report_shared(lease_granted, "x", 1, "worker");
    report_shared(lease_granted, "x", 2, "worker", "b");
    report(lease_granted, {"y"}, 8);
    EXPECT_EQ(held_.count("a", now_), 2U) << "another principal may have an owner of the same name";
    EXPECT_TRUE(admit(wanted_shared("x", "worker"))) << "a further hold";
    EXPECT_FALSE(admit(wanted_shared("x", "other")));
    report_shared(lease_revoked, "x", 1, "worker");
    EXPECT_EQ(held_.count("a", now_), 1U);
}

TEST_F(held_leases_test, revoked_by_operator_then_counts_no_longer) {
    report(lease_granted, {"x"}, 1);
    report(lease_revoked, {"x"}, 1, 0ms, "operator");
    EXPECT_EQ(held_.count("a", now_), 0U);
}

TEST_F(held_leases_test, limit_set_by_reload_then_earlier_leases_and_calls_count) {
    limiter_.set_limits({}, true);
    report(lease_granted, {"x"}, 1);
    auto waiting = admit(wanted({"y"}));
    report(lease_renewed, {"x"}, 1, 900ms);
    EXPECT_TRUE(admits({"z"}, 1'000ms)) << "no limit";
    limiter_.set_limits(config(), true);
    EXPECT_FALSE(admits({"z"}, 1'000ms));
    limiter_.set_limits({}, true);
    report(lease_released, {"x"}, 1, 1'100ms);
    limiter_.set_limits(config(), true);
    EXPECT_TRUE(admits({"z"}, 1'200ms));
    EXPECT_EQ(next_.events, 3);
}

}  // namespace
}  // namespace fencegate::limits
