// What others wrote under the keys of the protocol: no script fails on it, and no other lease suffers.
#include "paper/paper_nodes.hpp"

#include <array>

namespace lockcore {
namespace {

using fencegate::testing::call_of;
using fencegate::testing::nonce_of;
using fencegate::testing::played_node;
using fencegate::testing::rules;
using kind = command_kind;
using status = reply_status;

/// Values of every type, texts that begin like a lease and are cut off, and counters that are none.
class foreign_values {
  public:
    foreign_values(played_node& node, const std::string& resource) : node_(node), lease_("fg:lease:" + resource) {
        counter_ = "fg:token:" + std::to_string(resource_name::parse(resource)->bucket());
    }
    template <class Check>
    void each_lease(const std::string& whole, const Check& check) {
        for (std::size_t n = 0; n < whole.size(); ++n)
            with_lease({"SET", lease_, whole.substr(0, n)}, check);
        for (const char* text : {" ", "\n", "\1", "?", "0", "-1", "nan", "\n\n\n\n\n\n"})
            with_lease({"SET", lease_, text}, check);
        const std::string long_number(40, '9');
        const std::size_t keys_at = whole.rfind(' ', whole.find('\n'));  // behind it any word is one
        for (std::size_t at = whole.find(' '); at < keys_at; at = whole.find(' ', at + 1))
            with_lease({"SET", lease_,
                        whole.substr(0, at + 1) + long_number + whole.substr(whole.find_first_of(" \n", at + 1))},
                       check);
        with_lease({"SET", lease_, whole + "x"}, check);
        with_lease({"SET", lease_, std::string(32, 'f') + whole}, check);
        with_lease({"RPUSH", lease_, whole}, check);
        with_lease({"SADD", lease_, whole}, check);
        with_lease({"HSET", lease_, "a", whole}, check);
        with_lease({"ZADD", lease_, "1", whole}, check);
        with_lease({"XADD", lease_, "*", "a", whole}, check);
    }
    template <class Check>
    void each_counter(const Check& check) {
        for (const char* text : {"", "x", "-1", "1.5", "0x10", "inf", "nan", "1e3", " 1", "99999999999999999999"})
            with(counter_, {"SET", counter_, text}, check);
        with(counter_, {"RPUSH", counter_, "1"}, check);
        with(counter_, {"HSET", counter_, "a", "1"}, check);
    }

  private:
    template <class Check>
    void with_lease(std::initializer_list<std::string> write, const Check& check) {
        with(lease_, write, check);
        node_.ask({"DEL", lease_});
        node_.ask(write);
        node_.ask({"PEXPIRE", lease_, "20000"});
        check(std::string(*(write.end() - 1)));
        node_.ask({"DEL", lease_});
    }
    template <class Check>
    void with(const std::string& key, std::initializer_list<std::string> write, const Check& check) {
        node_.ask({"DEL", key});
        ASSERT_FALSE(node_.ask(write).starts_with("ERR"));
        check(std::string(*(write.end() - 1)));
        node_.ask({"DEL", key});
    }
    played_node& node_;
    std::string lease_, counter_;
};

constexpr std::array lease_kinds{kind::renew,   kind::hold,    kind::top_up,  kind::close, kind::release,
                                 kind::acquire, kind::confirm, kind::inspect, kind::undo};

// An empty value under one lease key took the node out of the vote for every lease that travelled in the same call.
TEST_F(rules, foreign_value_under_a_lease_key_is_anothers_lease_and_never_an_error) {
    ASSERT_EQ(n0().run(kind::acquire, call_of('a', {r})).value, 1U);
    const std::string whole = n0().lease(r);
    const std::string other = "orders/1";
    foreign_values(n0(), r).each_lease(whole, [&](const std::string& text) {
        const std::string dump = n0().ask({"DUMP", "fg:lease:" + r});
        const auto a = call_of('a', {r});
        const bool callers = text.starts_with(std::string(a.attempt.str()) + ' ') &&
                             text.ends_with('\n' + std::string(a.hold.str()) + "\n\n");
        for (const kind k : lease_kinds) {
            if (callers && (k == kind::release || k == kind::undo)) continue;  // it may end it
            auto mine = call_of('a', {r});
            if (k == kind::acquire) mine.mark = "00000000000000aa";
            auto free = call_of('b', {other});
            const auto answers = n0().run_all(k, {{mine, fencing_token{1}}, {free, fencing_token{1}}});
            const bool takes = k == kind::acquire, puts_back = k == kind::top_up;
            EXPECT_EQ(answers[0].status, takes || puts_back ? status::held : status::lost)
                << static_cast<int>(k) << " '" << text << "' " << answers[0].text;
            EXPECT_EQ(answers[1].status, takes || puts_back ? status::ok : status::lost) << static_cast<int>(k);
            n0().run_out(other);
        }
        auto next = call_of('b', {r});
        next.previous = nonce_of('a');
        EXPECT_EQ(n0().run(kind::acquire, next).status, status::held) << text;
        const node_reply seen = n0().run(kind::look, call_of('a', {r}));
        EXPECT_EQ(seen.status, status::ok);
        EXPECT_EQ(seen.text, "?") << text;
        EXPECT_EQ(n0().ask({"DUMP", "fg:lease:" + r}), dump) << "it is left as it is: " << text;
    });
}

TEST_F(rules, foreign_value_under_a_counter_key_is_refused_for_its_resource_alone) {
    foreign_values(n0(), r).each_counter([&](const std::string& text) {
        const std::string dump = n0().ask({"DUMP", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())});
        for (const kind k : {kind::acquire, kind::top_up}) {
            const auto answers = n0().run_all(
                k, {{call_of('a', {r}), fencing_token{1}}, {call_of('b', {"orders/1"}), fencing_token{1}}});
            EXPECT_EQ(answers[0].status, status::error) << text;
            EXPECT_EQ(answers[1].status, status::ok) << answers[1].text;
            n0().run_out("orders/1");
            EXPECT_EQ(n0().lease(r), "");
        }
        EXPECT_EQ(n0().ask({"DUMP", "fg:token:" + std::to_string(resource_name::parse(r)->bucket())}), dump) << text;
    });
}

}  // namespace
}  // namespace lockcore
