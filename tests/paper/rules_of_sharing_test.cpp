// docs/protocol.md, SHARED LEASES: the scripts. See rules_test.cpp.
#include <proto/lease_record.hpp>

#include "paper/admitted_nodes.hpp"

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::count_holds;
using fencegate::testing::node_client;
using fencegate::testing::with_hold;
using kind = command_kind;
using status = reply_status;
using namespace std::chrono_literals;

using names = std::vector<std::string>;

class sharing : public fencegate::testing::rules {
  protected:
    static constexpr std::uint64_t holders_max = 1'024;
    static constexpr std::int64_t wait_ms = 1'000;

    struct caller {
        std::string owner, key, wake_mark;
    };
    /// Returns a call for these resources, of which it shares the last `shared`.
    static lease_call call(const nonce& attempt, const names& resources, std::size_t shared, const caller& by,
                           milliseconds ttl = 30s) {
        lease_call out = call_of('a', resources, ttl);
        out.attempt_id = attempt;
        out.hold = hold_id::of_grant(attempt);
        out.shared = shared;
        out.wake_mark = by.wake_mark;
        lease_claims claims;
        const auto first_shared = out.resources.end() - static_cast<std::ptrdiff_t>(shared);
        claims.resources.assign(out.resources.begin(), first_shared);
        claims.shared.assign(first_shared, out.resources.end());
        claims.holder = {"tests", by.owner};
        claims.hold = out.hold;
        claims.granted_at = out.granted_at;
        out.tail = lease_tail(claims, {ttl, 0, {}, by.key, {}});
        return out;
    }
    static lease_call shares(char letter, const names& resources, const caller& by = {}, milliseconds ttl = 30s) {
        return call(fencegate::testing::nonce_of(letter), resources, resources.size(), by, ttl);
    }
    static lease_call waits(char letter, const names& resources) {
        lease_call out = call_of(letter, resources);
        out.wake_mark = "00000000000000aa";
        return out;
    }
    std::string key_of(const lease_call& c, const std::string& resource) {
        return resource + '\t' + std::string(c.attempt_id.str());
    }
    status acquire(const lease_call& c) { return n0().run(kind::acquire, c).status; }
    std::int64_t time_left_of_index() { return n0().time_left(r); }
};

TEST_F(sharing, any_number_share_and_each_raises_the_counter) {
    EXPECT_EQ(n0().run(kind::acquire, shares('a', {r})).value, 1U);
    EXPECT_EQ(n0().run(kind::acquire, shares('b', {r})).value, 2U);
    EXPECT_EQ(n0().counter(r), "2");
}

TEST_F(sharing, exclusive_and_shared_leases_refuse_each_other) {
    const auto a = shares('a', {r}), b = shares('b', {r});
    ASSERT_EQ(acquire(a), status::ok);
    ASSERT_EQ(acquire(b), status::ok);
    const std::string before = n0().all_keys();
    EXPECT_EQ(acquire(call_of('x', {r})), status::held);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(n0().run(kind::release, a).status, status::ok);
    EXPECT_EQ(acquire(call_of('x', {r})), status::held) << "another holder is left";
    EXPECT_EQ(n0().run(kind::release, b).status, status::ok);
    EXPECT_EQ(n0().lease(r), "") << "the last one deletes the index";
    const node_reply granted = n0().run(kind::acquire, call_of('x', {r}));
    EXPECT_EQ(granted.value, 3U);
    EXPECT_EQ(n0().run(kind::acquire, shares('c', {r})).value, 3U) << "held, with the token of the holder";
}

TEST_F(sharing, held_reply_names_time_and_highest_counter) {
    ASSERT_EQ(acquire(shares('a', {r})), status::ok);
    n0().set_counter(r, 8);
    const node_reply held = n0().run(kind::acquire, call_of('x', {r}));
    EXPECT_EQ(held.status, status::held);
    EXPECT_EQ(held.value, 8U);
    EXPECT_GT(held.remaining, 0ms);
}

TEST_F(sharing, expired_holders_do_not_refuse_exclusive_request) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    n0().expire_lease(key_of(a, r));
    EXPECT_EQ(acquire(call_of('x', {r})), status::ok);
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost);
}

TEST_F(sharing, mixed_lease_is_taken_all_or_none_under_one_token) {
    n0().set_counter("q", 6);
    n0().set_counter("s", 4);
    const auto m = call(fencegate::testing::nonce_of('a'), {"q", "r", "s"}, 2, {});
    for (const char* taken : {"q", "r", "s"}) {
        ASSERT_EQ(acquire(call_of('x', {taken})), status::ok);
        const std::string before = n0().all_keys();
        EXPECT_EQ(acquire(m), status::held) << taken;
        EXPECT_EQ(n0().all_keys(), before) << taken;
        ASSERT_EQ(n0().run(kind::release, call_of('x', {taken})).status, status::ok);
    }
    ASSERT_EQ(acquire(shares('b', {"s"})), status::ok);
    const node_reply granted = n0().run(kind::acquire, m);
    EXPECT_EQ(granted.value, 8U);
    for (const char* name : {"q", "r", "s"})
        EXPECT_EQ(n0().counter(name), "8") << name;
    EXPECT_EQ(n0().token_of("q"), "8");
    EXPECT_EQ(n0().token_of(key_of(m, "r")), "8");
    EXPECT_EQ(n0().run(kind::inspect, m, 8).status, status::ok);
    EXPECT_EQ(n0().run(kind::release, m).status, status::ok);
    EXPECT_EQ(n0().lease("r"), "");
    EXPECT_NE(n0().lease("s"), "") << "it has another holder";
}

TEST_F(sharing, confirm_sets_token_and_counter_of_shared_resources) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    n0().set_counter(r, 5);
    EXPECT_EQ(n0().run(kind::confirm, a, 4).status, status::stale);
    EXPECT_EQ(n0().run(kind::confirm, a, 9).status, status::ok);
    EXPECT_EQ(n0().counter(r), "9");
    EXPECT_EQ(n0().run(kind::inspect, a, 9).status, status::ok);
}

TEST_F(sharing, waiting_exclusive_request_is_not_overtaken) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    EXPECT_EQ(acquire(waits('x', {r})), status::held);
    EXPECT_EQ(acquire(shares('b', {r})), status::held);
    EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::ok) << "holders go on";
    EXPECT_EQ(acquire(a), status::ok) << "a late request of a holder";
    EXPECT_EQ(n0().run(kind::release, a).status, status::ok);
    EXPECT_EQ(acquire(shares('b', {r})), status::held) << "before the waiter has tried again";
    EXPECT_EQ(acquire(waits('x', {r})), status::ok);
    EXPECT_EQ(n0().time_left(r + "\twait"), -2) << "the grant ends the wait mark";
    EXPECT_EQ(n0().run(kind::release, waits('x', {r})).status, status::ok);
    EXPECT_EQ(acquire(shares('b', {r})), status::ok);
}

TEST_F(sharing, wait_mark_ends_by_itself_and_the_index_after_it) {
    ASSERT_EQ(acquire(shares('a', {r}, {}, 100ms)), status::ok);
    ASSERT_EQ(acquire(waits('x', {r})), status::held);
    const std::int64_t left = n0().time_left(r + "\twait");
    EXPECT_GT(left, 0);
    EXPECT_LE(left, wait_ms);
    EXPECT_GE(time_left_of_index() + 1, left);
    n0().expire_lease(r + "\twait");
    EXPECT_EQ(acquire(shares('b', {r})), status::ok);
}

TEST_F(sharing, exclusive_request_that_does_not_wait_leaves_no_mark) {
    ASSERT_EQ(acquire(shares('a', {r})), status::ok);
    ASSERT_EQ(acquire(call_of('x', {r})), status::held);
    EXPECT_EQ(acquire(shares('b', {r})), status::ok);
}

TEST_F(sharing, index_lasts_as_long_as_its_holders) {
    const auto a = shares('a', {r}, {}, 2s);
    ASSERT_EQ(acquire(a), status::ok);
    ASSERT_EQ(n0().run(kind::renew, shares('a', {r}, {}, 20s), 1).status, status::ok);
    EXPECT_GE(time_left_of_index(), n0().time_left(key_of(a, r)));
    ASSERT_EQ(acquire(shares('b', {r}, {}, 100s)), status::ok);
    ASSERT_EQ(acquire(shares('c', {r}, {}, 100ms)), status::ok);
    EXPECT_GT(time_left_of_index(), 90'000) << "never shortened";
}

TEST_F(sharing, index_gets_no_more_time_where_the_clock_was_set_back) {
    ASSERT_EQ(acquire(shares('a', {r}, {}, 2s)), status::ok);
    n0().command({"PEXPIRE", "fg:lease:" + r, "9000000"});
    ASSERT_EQ(acquire(call_of('x', {r})), status::held);
    EXPECT_LE(time_left_of_index(), 4'000);
}

TEST_F(sharing, caller_that_asks_again_finds_its_lease) {
    const std::string key = "0123456789abcdef00000001";
    const auto a = shares('a', {r}, {"worker-7", key, {}});
    ASSERT_EQ(acquire(shares('b', {r}, {"worker-8", {}, {}})), status::ok);
    ASSERT_EQ(acquire(a), status::ok);
    const auto by_owner = shares('c', {r}, {"worker-7", {}, {}}), by_key = shares('d', {r}, {"worker-9", key, {}});
    for (const lease_call& again : {by_owner, by_key}) {
        const node_reply own = n0().run(kind::acquire, again);
        EXPECT_EQ(own.status, status::own);
        EXPECT_EQ(own.text, n0().lease(key_of(a, r)));
        lease_call look = again;
        look.resources.resize(1, look.resources.front());
        look.shared = 0;
        EXPECT_EQ(n0().run(kind::look, look).text, own.text);
    }
    EXPECT_EQ(acquire(shares('e', {r, "s"}, {"worker-7", {}, {}})), status::ok) << "other resources";
    EXPECT_EQ(acquire(shares('f', {r}, {"worker-6", {}, {}})), status::ok) << "another owner";
    EXPECT_EQ(acquire(shares('1', {r})), status::ok) << "no owner";
}

TEST_F(sharing, key_of_further_hold_finds_the_lease) {
    const auto a = shares('a', {r}, {"worker-7", {}, {}});
    ASSERT_EQ(acquire(a), status::ok);
    lease_call further = with_hold(a, 2);
    further.key = "0123456789abcdef00000001";
    further.hold_max = 1h;
    ASSERT_EQ(count_holds(n0().run(kind::hold, further, 1)), 2U);
    EXPECT_EQ(acquire(shares('c', {r}, {"worker-9", further.key, {}})), status::own);
}

TEST_F(sharing, lease_is_there_only_if_the_index_names_it) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    const std::string index_of_another = "shared 60000\n" + std::string(fencegate::testing::nonce_of('b').str());
    for (const std::string& index : {std::string(), index_of_another}) {
        n0().expire_lease(r);
        if (!index.empty()) n0().command({"SET", "fg:lease:" + r, index, "PX", "60000"});
        EXPECT_EQ(n0().run(kind::renew, a, 1).status, status::lost) << index;
        EXPECT_EQ(n0().run(kind::inspect, a, 1).status, status::lost) << index;
        EXPECT_EQ(n0().run(kind::confirm, a, 5).status, status::lost) << index;
        EXPECT_EQ(n0().read_leases("", "0", 100).size(), 2U) << "base and cursor only";
    }
    EXPECT_EQ(n0().run(kind::top_up, a, 5).status, status::ok);
    EXPECT_EQ(n0().run(kind::inspect, a, 5).status, status::ok);
    EXPECT_EQ(acquire(call_of('x', {r})), status::held);
}

TEST_F(sharing, top_up_puts_no_lease_beside_an_exclusive_one) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    ASSERT_EQ(acquire(shares('b', {r})), status::ok);
    n0().expire_lease(key_of(a, r));
    EXPECT_EQ(n0().run(kind::top_up, a, 5).status, status::ok) << "beside a shared one";
    n0().expire_lease(key_of(a, r));
    n0().expire_lease(r);
    ASSERT_EQ(acquire(call_of('x', {r})), status::ok);
    const std::string before = n0().all_keys();
    EXPECT_EQ(n0().run(kind::top_up, a, 9).status, status::held);
    EXPECT_EQ(n0().all_keys(), before);
    EXPECT_EQ(acquire(shares('c', {r})), status::held);
}

TEST_F(sharing, other_value_in_the_place_of_the_index_refuses) {
    n0().command({"SET", "fg:lease:" + r, "stranger"});
    const node_reply held = n0().run(kind::acquire, shares('a', {r}));
    EXPECT_EQ(held.status, status::held);
    EXPECT_EQ(held.value, 0U);
}

TEST_F(sharing, pages_and_listings_have_holders_without_index) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    ASSERT_EQ(acquire(waits('x', {r})), status::held);
    const auto page = n0().read_leases("", "0", 100);
    ASSERT_EQ(page.size(), 5U);
    EXPECT_EQ(page[2], key_of(a, r));
    EXPECT_EQ(page[4], n0().lease(key_of(a, r)));
    lease_call list;
    list.cursor = "0";
    list.pattern = "fg:lease:*";
    const node_reply listed = n0().run(kind::list, list);
    EXPECT_EQ(listed.text, "0\t" + r);
}

TEST_F(sharing, look_names_the_holders_that_have_leases) {
    const auto a = shares('a', {r}), b = shares('b', {r});
    ASSERT_EQ(acquire(a), status::ok);
    ASSERT_EQ(acquire(b), status::ok);
    lease_call any = call_of('c', {r});
    any.tail = "*";
    const std::string nonce_a(a.attempt_id.str()), nonce_b(b.attempt_id.str());
    EXPECT_EQ(n0().run(kind::look, any).text, "shared " + nonce_a + ' ' + nonce_b);
    n0().expire_lease(key_of(a, r));
    EXPECT_EQ(n0().run(kind::look, any).text, "shared " + nonce_b);
    any.tail.clear();
    EXPECT_EQ(n0().run(kind::look, any).status, status::lost) << "no exclusive one";
    lease_call one = b;
    one.tail.clear();
    EXPECT_EQ(n0().run(kind::look, one).text, n0().lease(key_of(b, r)));
    EXPECT_EQ(n0().run(kind::look, a).status, status::lost);
    n0().expire_lease(key_of(b, r));
    any.tail = "*";
    EXPECT_EQ(n0().run(kind::look, any).status, status::lost);
}

TEST_F(sharing, index_lasts_as_long_as_a_late_request_of_its_holder) {
    ASSERT_EQ(acquire(shares('a', {r}, {}, 1s)), status::ok);
    ASSERT_EQ(acquire(shares('a', {r}, {}, 50s)), status::ok);
    EXPECT_GE(time_left_of_index(), n0().time_left(key_of(shares('a', {r}), r)));
}

TEST_F(sharing, those_that_wait_for_the_index_wait_for_the_next_lease) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    lease_call writer = waits('x', {r}), other = waits('y', {r});
    other.wake_mark = "00000000000000bb";
    ASSERT_EQ(acquire(writer), status::held);
    ASSERT_EQ(acquire(other), status::held);
    ASSERT_EQ(acquire(shares('b', {r}, {{}, {}, "00000000000000cc"})), status::held) << "by the wait mark";
    ASSERT_EQ(n0().run(kind::release, a).status, status::ok);
    writer.tail += '\1' + writer.wake_mark;  // its gateway has other waiters
    n0().command({"SET", "fg:lease:" + r, "shared 60000\1" + writer.wake_mark + '\1' + other.wake_mark, "PX", "60000"});
    ASSERT_EQ(acquire(writer), status::ok);
    const std::string lease = n0().lease(r);
    EXPECT_TRUE(lease.ends_with('\1' + writer.wake_mark + '\1' + other.wake_mark)) << lease;
}

TEST_F(sharing, end_of_an_index_is_published_alike_by_all_nodes) {
    names texts;
    for (const char last : {'a', 'b'}) {
        ASSERT_EQ(acquire(shares('a', {r})), status::ok);
        ASSERT_EQ(acquire(shares('b', {r})), status::ok);
        ASSERT_EQ(acquire(waits('x', {r})), status::held);
        node_client subscriber = nodes[0];
        subscriber.connect();
        subscriber.command({"SUBSCRIBE", "fg:wake:00000000000000aa"});
        ASSERT_EQ(n0().run(kind::release, shares(last == 'a' ? 'b' : 'a', {r})).status, status::ok);
        ASSERT_EQ(n0().run(kind::release, shares(last, {r})).status, status::ok);
        texts.push_back(subscriber.next_message());
        n0().expire_lease(r);
        n0().expire_lease(r + "\twait");
    }
    EXPECT_EQ(texts[0], texts[1]);
    EXPECT_TRUE(texts[0].ends_with(' ' + r)) << texts[0];
}

TEST_F(sharing, no_script_fails_on_an_index_of_another_writer) {
    const std::string line = '\n' + std::string(fencegate::testing::nonce_of('a').str()), digest = " 0123456789abcdef";
    for (const std::string& value :
         {std::string("shared 0"), "shared 0" + line, "shared 01" + line, "shared 99999999999999999999" + line,
          std::string("shared x"), std::string("shared "), "shared 5000\nz" + digest, "shared 5000\nab" + digest,
          "shared 5000" + line}) {
        for (const kind k : {kind::acquire, kind::confirm, kind::renew, kind::inspect, kind::release, kind::look,
                             kind::list, kind::top_up, kind::close}) {
            for (const bool exclusive : {false, true}) {
                n0().command({"SET", "fg:lease:" + r, value, "PX", "60000"});
                lease_call call =
                    exclusive ? waits('x', {r}) : shares('b', {r}, {"o", "0123456789abcdef00000001", "aa"});
                call.cursor = "0";
                call.pattern = "fg:lease:*";
                EXPECT_NE(n0().run(k, call, 1).status, status::error) << value << ' ' << static_cast<int>(k);
            }
        }
        EXPECT_GE(n0().read_leases("", "0", 100).size(), 2U) << value;
    }
}

TEST_F(sharing, installed_holder_is_named_and_replaces_another_lease) {
    const auto a = shares('a', {r});
    ASSERT_EQ(acquire(a), status::ok);
    const std::string value = n0().lease(key_of(a, r));
    node_client& forgot = nodes[1];
    ASSERT_EQ(forgot.run(kind::acquire, call_of('x', {r})).status, status::ok);
    forgot.command({"HSET", "fg:node", "run", "another-run"});
    const std::string mark = forgot.mark("0123456789abcdef0123456789abcdef");
    ASSERT_EQ(forgot.install(forgot.run_id(), mark, {{key_of(a, r), value, 20'000}}), "OK");
    ASSERT_EQ(forgot.readmit_marked(1, mark), "OK");
    EXPECT_EQ(forgot.run(kind::acquire, call_of('y', {r})).status, status::held);
    EXPECT_EQ(forgot.run(kind::acquire, shares('b', {r})).status, status::ok);
    EXPECT_EQ(forgot.run(kind::release, a).status, status::ok) << "named";
    EXPECT_EQ(forgot.lease(key_of(a, r)), "");
}

TEST_F(sharing, index_has_a_limit_and_makes_room_for_ended_holders) {
    for (std::uint64_t i = 1; i <= holders_max; ++i)
        ASSERT_EQ(acquire(call(nonce::from_bits(i, 2 * i), {r}, 1, {})), status::ok) << i;
    EXPECT_EQ(acquire(shares('a', {r})), status::held);
    n0().expire_lease(r + '\t' + std::string(nonce::from_bits(3, 6).str()));
    status last = status::held;
    for (int tries = 0; tries < 4 && last == status::held; ++tries)
        last = acquire(shares('a', {r}));
    EXPECT_EQ(last, status::ok);
}

}  // namespace
}  // namespace lockcore
