// Foreign values under the keys of the protocol: no script fails on them, and no other lease is affected.
#include "paper/admitted_nodes.hpp"

#include <array>
#include <initializer_list>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::node_client;
using fencegate::testing::nonce_of;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;

/// Writes foreign values: values of every type, truncated leases, and counters that are not numbers.
class foreign_values {
  public:
    foreign_values(node_client& node, const std::string& resource) : node_(node), lease_("fg:lease:" + resource) {
        counter_ = "fg:token:" + std::to_string(resource_name::parse(resource)->bucket());
    }
    template <class Check>
    void for_each_lease_value(const std::string& whole, const Check& check) {
        for (std::size_t n = 0; n < whole.size(); ++n)
            check_lease_value({"SET", lease_, whole.substr(0, n)}, check);
        for (const char* text : {" ", "\n", "\1", "?", "0", "-1", "nan", "\n\n\n\n\n\n"})
            check_lease_value({"SET", lease_, text}, check);
        const std::string long_number(40, '9');
        const std::size_t keys_at = whole.rfind(' ', whole.find('\n'));  // after this any text is a valid field
        for (std::size_t at = whole.find(' '); at < keys_at; at = whole.find(' ', at + 1))
            check_lease_value(
                {"SET", lease_,
                 whole.substr(0, at + 1) + long_number + whole.substr(whole.find_first_of(" \n", at + 1))},
                check);
        const std::size_t stamp_at = whole.find(' ') + 1, stamp_end = whole.find(' ', stamp_at);
        for (const std::string& stamp : {std::string("5:"), std::string(":5"), std::string("5:6:7"), std::string("5:x"),
                                         std::string("5: 6"), "5:" + long_number, long_number + ":5"})
            check_lease_value({"SET", lease_, whole.substr(0, stamp_at) + stamp + whole.substr(stamp_end)}, check);
        const std::size_t ttl_at = whole.find(' ', whole.find(' ', stamp_at) + 1) + 1;
        check_lease_value({"SET", lease_, whole.substr(0, ttl_at) + '0' + whole.substr(ttl_at)}, check);  // no integer
        for (const std::string& end : {std::string("x"), std::string(31, 'a'), std::string(33, 'a'),
                                       std::string(32, 'A'), std::string(65 * 32, 'a')})
            check_lease_value({"SET", lease_, whole + end}, check);
        const std::string long_keys(8 * 42, 'a');  // one byte more than eight idempotency keys
        check_lease_value({"SET", lease_, whole.substr(0, keys_at + 1) + long_keys + whole.substr(whole.find('\n'))},
                          check);
        check_lease_value({"SET", lease_, std::string(32, 'f') + whole}, check);
        check_lease_value({"RPUSH", lease_, whole}, check);
        check_lease_value({"SADD", lease_, whole}, check);
        check_lease_value({"HSET", lease_, "a", whole}, check);
        check_lease_value({"ZADD", lease_, "1", whole}, check);
        check_lease_value({"XADD", lease_, "*", "a", whole}, check);
    }
    template <class Check>
    void for_each_counter_value(const Check& check) {
        for (const char* text : {"", "x", "-1", "1.5", "0x10", "inf", "nan", "1e3", " 1", "99999999999999999999"})
            check_value(counter_, {"SET", counter_, text}, check);
        check_value(counter_, {"RPUSH", counter_, "1"}, check);
        check_value(counter_, {"HSET", counter_, "a", "1"}, check);
    }

  private:
    template <class Check>
    void check_lease_value(std::initializer_list<std::string> write, const Check& check) {
        check_value(lease_, write, check);
        node_.command({"DEL", lease_});
        node_.command(write);
        node_.command({"PEXPIRE", lease_, "20000"});
        check(std::string(*(write.end() - 1)));
        node_.command({"DEL", lease_});
    }
    template <class Check>
    void check_value(const std::string& key, std::initializer_list<std::string> write, const Check& check) {
        node_.command({"DEL", key});
        ASSERT_FALSE(node_.command(write).starts_with("ERR"));
        check(std::string(*(write.end() - 1)));
        node_.command({"DEL", key});
    }
    node_client& node_;
    std::string lease_, counter_;
};

constexpr std::array lease_kinds{kind::renew,   kind::hold,    kind::top_up,  kind::close, kind::release,
                                 kind::acquire, kind::confirm, kind::inspect, kind::undo};

// An empty value under one lease key once made the script fail for every lease of the same call.
TEST_F(rules, foreign_value_under_lease_key_counts_as_another_holder) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    const std::string whole = n0().lease(r);
    const std::string other = "orders/1";
    foreign_values(n0(), r).for_each_lease_value(whole, [&](const std::string& text) {
        const std::string dump = n0().command({"DUMP", "fg:lease:" + r});
        const auto a = call_of('a', {r});
        const bool is_callers_lease = text.starts_with(std::string(a.attempt_id.str()) + ' ') &&
                                      text.ends_with('\n' + std::string(a.hold.str()) + "\n\n");
        for (const kind k : lease_kinds) {
            if (is_callers_lease && (k == kind::release || k == kind::undo)) continue;  // these may delete it
            auto own_call = call_of('a', {r});
            if (k == kind::acquire) own_call.wake_mark = "00000000000000aa";
            auto other_call = call_of('b', {other});
            const auto answers = n0().run_all(k, {{own_call, fencing_token{1}}, {other_call, fencing_token{1}}});
            const bool is_acquire = k == kind::acquire, is_top_up = k == kind::top_up;
            EXPECT_EQ(answers[0].status, is_acquire || is_top_up ? status::held : status::lost)
                << static_cast<int>(k) << " '" << text << "' " << answers[0].text;
            EXPECT_EQ(answers[1].status, is_acquire || is_top_up ? status::ok : status::lost) << static_cast<int>(k);
            n0().expire_lease(other);
        }
        auto next = call_of('b', {r});
        next.previous = nonce_of('a');
        EXPECT_EQ(n0().run(kind::acquire, next).status, status::held) << text;
        const node_reply seen = n0().run(kind::look, call_of('a', {r}));
        EXPECT_EQ(seen.status, status::ok);
        EXPECT_EQ(seen.text, "?") << text;
        EXPECT_EQ(n0().command({"DUMP", "fg:lease:" + r}), dump) << "the value must not change: " << text;
    });
}

TEST_F(rules, foreign_value_under_counter_key_fails_only_its_own_resource) {
    foreign_values(n0(), r).for_each_counter_value([&](const std::string& text) {
        const std::string dump =
            n0().command({"DUMP", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())});
        for (const kind k : {kind::acquire, kind::top_up}) {
            const auto answers = n0().run_all(
                k, {{call_of('a', {r}), fencing_token{1}}, {call_of('b', {"orders/1"}), fencing_token{1}}});
            EXPECT_EQ(answers[0].status, status::error) << text;
            EXPECT_EQ(answers[1].status, status::ok) << answers[1].text;
            n0().expire_lease("orders/1");
            EXPECT_EQ(n0().lease(r), "");
            // A lease that counts already needs no counter.
            n0().command({"SET", "fg:lease:" + r,
                          std::string(call_of('a', {r}).attempt_id.str()) + " 1 " + call_of('a', {r}).tail, "PX",
                          "20000"});
            EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 1).status, status::ok);
            EXPECT_EQ(n0().run(kind::top_up, call_of('a', {r}), 2).status, status::ok);
            n0().expire_lease(r);
        }
        EXPECT_EQ(n0().command({"DUMP", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())}), dump)
            << text;
    });
}

TEST_F(rules, hold_id_of_another_length_fails_no_script) {
    const std::string other = "orders/1";
    for (const kind k : {kind::renew, kind::hold, kind::top_up, kind::close, kind::inspect, kind::release}) {
        ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r, other})).status, status::ok);
        const std::string whole = n0().lease(other);
        const std::string hold(call_of('a', {r}).hold.str());
        n0().command({"SET", "fg:lease:" + other, std::string(whole).replace(whole.rfind(hold), hold.size(), "fff"),
                      "PX", "20000"});
        EXPECT_NE(n0().run(k, call_of('a', {r, other}), 1).status, status::error) << static_cast<int>(k);
        n0().expire_lease(r);
        n0().expire_lease(other);
    }
}

}  // namespace
}  // namespace lockcore
