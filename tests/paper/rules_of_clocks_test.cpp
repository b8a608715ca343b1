// docs/protocol.md, CLOCK SET BACK: the time left of a lease on a node whose clock was set back. See rules_test.cpp.
#include "paper/admitted_nodes.hpp"

#include <string>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::node_client;
using fencegate::testing::rules;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

/// Gives the key an hour, as a clock does that is set back by so much.
void set_clock_back(node_client& node, const std::string& resource) {
    ASSERT_EQ(node.command({"PEXPIRE", "fg:lease:" + resource, "3600000"}), "1");
}

TEST_F(rules, back_another_caller_waits_for_the_ttl_at_most) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 20s)).status, status::ok);
    const std::string before = n0().lease(r);
    set_clock_back(n0(), r);
    const node_reply refused = n0().run(kind::acquire, call_of('b', {r}, 1s));
    EXPECT_EQ(refused.status, status::held);
    EXPECT_EQ(refused.remaining, 20s);
    EXPECT_LE(n0().time_left(r), 20'000);
    EXPECT_GT(n0().time_left(r), 15'000) << "it is not shortened to the ttl of the other caller";
    EXPECT_EQ(n0().lease(r), before);
}

TEST_F(rules, back_every_script_that_reads_the_time_corrects_it) {
    for (const kind k : {kind::renew, kind::hold, kind::confirm, kind::top_up, kind::inspect, kind::look}) {
        const std::string name = r + '/' + std::to_string(static_cast<int>(k));
        const node_reply granted = n0().run(kind::acquire, call_of('a', {name}, 20s));
        ASSERT_EQ(granted.status, status::ok);
        set_clock_back(n0(), name);
        const auto call = call_of('a', {name}, 1s);
        const node_reply answer = n0().run(k, k == kind::hold ? with_hold(call, 2) : call, granted.value);
        EXPECT_EQ(answer.status, status::ok) << name;
        EXPECT_LE(n0().time_left(name), 20'000) << name;
        EXPECT_GT(n0().time_left(name), 15'000) << name << ": nothing is shortened";
        if (k == kind::inspect || k == kind::look) {
            EXPECT_EQ(answer.remaining, 20s) << name;
        }
    }
}

TEST_F(rules, back_correction_keeps_what_was_written_last) {
    for (const kind k : {kind::acquire, kind::renew, kind::hold, kind::confirm, kind::top_up}) {
        const std::string name = r + '/' + std::to_string(static_cast<int>(k));
        const node_reply granted = n0().run(kind::acquire, call_of('a', {name}, 1s));
        const auto call = call_of('a', {name}, 30s);
        ASSERT_EQ(n0().run(k, k == kind::hold ? with_hold(call, 2) : call, granted.value).status, status::ok) << name;
        ASSERT_EQ(n0().run(kind::acquire, call_of('b', {name}, 1s)).status, status::held);
        EXPECT_GT(n0().time_left(name), 25'000) << name << ": the ttl in the lease is that of its PX";
        set_clock_back(n0(), name);
        ASSERT_EQ(n0().run(kind::acquire, call_of('b', {name}, 1s)).status, status::held);
        EXPECT_LE(n0().time_left(name), 30'000) << name;
        EXPECT_GT(n0().time_left(name), 25'000) << name;
    }
}

TEST_F(rules, back_renewal_does_not_keep_the_time_of_the_clock) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r}, 5s)).status, status::ok);
    for (int times = 0; times < 3; ++times) {
        set_clock_back(n0(), r);
        ASSERT_EQ(n0().run(kind::renew, call_of('a', {r}, 10s), 1).status, status::ok);
        EXPECT_LE(n0().time_left(r), 10'000);
    }
}

TEST_F(rules, back_only_leases_with_a_ttl_are_corrected) {
    n0().command({"SET", "fg:lease:" + r, "of another program", "PX", "3600000"});
    EXPECT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::held);
    EXPECT_GT(n0().time_left(r), 3'500'000);
    n0().command({"DEL", "fg:lease:" + r});
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).status, status::ok);
    n0().command({"PERSIST", "fg:lease:" + r});
    EXPECT_EQ(n0().run(kind::acquire, call_of('b', {r})).status, status::held);
    EXPECT_EQ(n0().time_left(r), -1) << "a leaked key is shown as one";
}

}  // namespace
}  // namespace lockcore
